#!/bin/bash
# Stands for Hadoop's `bin/hdfs`, whose shell no registry serves: as much of the contract of its
# UnixShellGuide as a DataNode needs. The suite runs with the real one where HAYLOFT_HADOOP_SHELL
# names an installation.
#
# Kept of the contract: `--config`, `--daemon start|stop|status`, hadoop-env.sh, shellprofile.d of
# the configuration, `hdfs_subcommand_NAME`, functions that a profile may replace, names of
# variables, of the pid file and of the .out file, exit codes.

HADOOP_CONF_DIR=/etc/hadoop/conf
HADOOP_DAEMON_MODE=default
while :; do
    case $1 in
        --config) HADOOP_CONF_DIR=$2; shift 2 ;;
        --daemon) HADOOP_DAEMON_MODE=$2; shift 2 ;;
        *) break ;;
    esac
done
HADOOP_SUBCMD=$1
shift
HADOOP_SUBCMD_ARGS=("$@")
HADOOP_IDENT_STRING=${USER:-$(id -nu)}

hadoop_error() { echo "$*" >&2; }
hadoop_debug() { :; }

hadoop_start_daemon() {
    local name=$1 class=$2 pid_file=$3
    shift 3
    echo $$ >"$pid_file"
    # shellcheck disable=SC2086
    exec "$JAVA_HOME/bin/java" "-Dproc_$name" $HADOOP_OPTS \
        -cp "$HADOOP_CONF_DIR:$HADOOP_CLASSPATH" "$class" "$@"
}

# shellcheck disable=SC1091
. "$HADOOP_CONF_DIR/hadoop-env.sh"
for profile in "$HADOOP_CONF_DIR"/shellprofile.d/*.sh; do
    # shellcheck disable=SC1090
    [ ! -f "$profile" ] || . "$profile"
done

if declare -F "hdfs_subcommand_$HADOOP_SUBCMD" >/dev/null; then
    "hdfs_subcommand_$HADOOP_SUBCMD" "${HADOOP_SUBCMD_ARGS[@]}"
elif [ "$HADOOP_SUBCMD" = datanode ]; then
    HADOOP_SUBCMD_SUPPORTDAEMONIZATION=true
    HADOOP_CLASSNAME=org.apache.hadoop.hdfs.server.datanode.DataNode
else
    hadoop_error "ERROR: $HADOOP_SUBCMD is not a subcommand here"
    exit 1
fi
[ "$HADOOP_SUBCMD_SUPPORTDAEMONIZATION" = true ] || exit 1

name=hadoop-$HADOOP_IDENT_STRING-$HADOOP_SUBCMD
pid_file=$HADOOP_PID_DIR/$name.pid
out_file=$HADOOP_LOG_DIR/$name-$HOSTNAME.out
[ "$HADOOP_DAEMON_MODE" = default ] || HADOOP_LOGFILE=$name-$HOSTNAME.log
lives() { kill -0 "$1" 2>/dev/null; }
state() {
    [ -f "$pid_file" ] || return 3
    lives "$(<"$pid_file")" || return 1
}
start() {
    hadoop_start_daemon "$HADOOP_SUBCMD" "$HADOOP_CLASSNAME" "$pid_file" "${HADOOP_SUBCMD_ARGS[@]}"
}
case $HADOOP_DAEMON_MODE in
    status) state ;;
    stop)
        [ -f "$pid_file" ] || exit 0
        pid=$(<"$pid_file")
        kill "$pid" 2>/dev/null
        for _ in {1..100}; do lives "$pid" || break; sleep 0.1; done
        kill -9 "$pid" 2>/dev/null
        for _ in {1..50}; do lives "$pid" || break; sleep 0.1; done
        rm -f "$pid_file"
        ;;
    start)
        if state; then
            hadoop_error "$HADOOP_SUBCMD is running as process $(<"$pid_file").  Stop it first."
            exit 1
        fi
        rm -f "$pid_file"
        start >>"$out_file" 2>&1 </dev/null &
        for _ in {1..50}; do [ ! -f "$pid_file" ] || break; sleep 0.1; done
        echo $! >"$pid_file"
        disown
        sleep 1
        lives $!
        ;;
    default) start ;;
esac
