#!/bin/bash
# Stands for Hadoop's `bin/hdfs`, whose shell no registry serves: as much of the contract of its
# UnixShellGuide as a DataNode needs. The suite runs with the real one where HAYLOFT_HADOOP_SHELL
# names an installation.
#
# Kept of the contract: `--config`, `--daemon start|stop|status`, hadoop-env.sh, shellprofile.d of
# libexec and of the configuration, `hdfs_subcommand_NAME`, functions that a profile may replace,
# names of variables, of the pid file and of the .out file, exit codes. HADOOP_HOME names whose
# scripts are taken, and HADOOP_STOP_TIMEOUT the seconds until a kill.

if [ -n "$HADOOP_HOME" ] && [ ! -d "$HADOOP_HOME/libexec" ]; then
    echo "ERROR: $HADOOP_HOME has no scripts" >&2
    exit 1
fi
HADOOP_CONF_DIR=${HADOOP_CONF_DIR:-/etc/hadoop/conf}
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
hadoop_deprecate_envvar() { [ -z "${!1}" ] || eval "$2=\$$1"; }
hadoop_rotate_log() { [ ! -f "$1" ] || mv "$1" "$1.1"; }

hadoop_start_daemon() {
    local name=$1 class=$2 pid_file=$3
    shift 3
    echo $$ >"$pid_file"
    # shellcheck disable=SC2086
    exec "$JAVA_HOME/bin/java" "-Dproc_$name" $HADOOP_OPTS \
        -cp "$HADOOP_CONF_DIR:$HADOOP_CLASSPATH" "$class" "$@"
}

# The pid file is jsvc's to write, which is another process than it starts with.
hadoop_start_secure_daemon() {
    local name=$1 class=$2 pid_file=$3 out_file=$4 error_file=$5 privileged_pid_file=$6
    shift 6
    echo $$ >"$privileged_pid_file"
    # shellcheck disable=SC2086
    exec "$JSVC_HOME/jsvc" "-Dproc_$name" -outfile "$out_file" -errfile "$error_file" \
        -pidfile "$pid_file" -nodetach -user "$HDFS_DATANODE_SECURE_USER" \
        -cp "$HADOOP_CONF_DIR:$HADOOP_CLASSPATH" $HADOOP_OPTS "$class" "$@"
}

# shellcheck disable=SC1091
. "$HADOOP_CONF_DIR/hadoop-env.sh"
libexec=${HADOOP_HOME:-${0%/*}/..}/libexec
for profile in "$libexec"/shellprofile.d/*.sh "$HADOOP_CONF_DIR"/shellprofile.d/*.sh; do
    # shellcheck disable=SC1090
    [ ! -f "$profile" ] || . "$profile"
done

HADOOP_STOP_TIMEOUT=${HADOOP_STOP_TIMEOUT:-5}
if declare -F "hdfs_subcommand_$HADOOP_SUBCMD" >/dev/null; then
    "hdfs_subcommand_$HADOOP_SUBCMD" "${HADOOP_SUBCMD_ARGS[@]}"
elif [ "$HADOOP_SUBCMD" = datanode ]; then
    HADOOP_SUBCMD_SUPPORTDAEMONIZATION=true
    HADOOP_CLASSNAME=org.apache.hadoop.hdfs.server.datanode.DataNode
    HADOOP_SECURE_CLASSNAME=org.apache.hadoop.hdfs.server.datanode.SecureDataNodeStarter
else
    hadoop_error "ERROR: $HADOOP_SUBCMD is not a subcommand here"
    exit 1
fi
[ "$HADOOP_SUBCMD_SUPPORTDAEMONIZATION" = true ] || exit 1

name=hadoop-$HADOOP_IDENT_STRING-$HADOOP_SUBCMD
if [ -n "$HADOOP_SECURE_CLASSNAME" ] && [ -n "$HDFS_DATANODE_SECURE_USER" ]; then
    if [ "$EUID" != 0 ]; then
        hadoop_error "ERROR: You must be a privileged user in order to run a secure service."
        exit 1
    fi
    HADOOP_PID_DIR=${HADOOP_SECURE_PID_DIR:-$HADOOP_PID_DIR}
    HADOOP_LOG_DIR=${HADOOP_SECURE_LOG_DIR:-$HADOOP_LOG_DIR}
    privileged=privileged-$HADOOP_IDENT_STRING-$HADOOP_SUBCMD
    name=hadoop-$HDFS_DATANODE_SECURE_USER-$HADOOP_IDENT_STRING-$HADOOP_SUBCMD
fi
pid_file=$HADOOP_PID_DIR/$name.pid
out_file=$HADOOP_LOG_DIR/$name-$HOSTNAME.out
wrapper_pid_file=$pid_file
wrapper_out_file=$out_file
if [ -n "$privileged" ]; then
    wrapper_pid_file=$HADOOP_PID_DIR/$privileged.pid
    wrapper_out_file=$HADOOP_LOG_DIR/$privileged-$HOSTNAME.out
fi
[ "$HADOOP_DAEMON_MODE" = default ] || HADOOP_LOGFILE=$name-$HOSTNAME.log
lives() { kill -0 "$1" 2>/dev/null; }
state() {
    [ -f "$pid_file" ] || return 3
    [[ $(ps -o args= -p "$(<"$pid_file")") =~ -Dproc_$HADOOP_SUBCMD ]] || return 1
}
start() {
    [ -z "$privileged" ] || hadoop_start_secure_daemon "$HADOOP_SUBCMD" \
        "$HADOOP_SECURE_CLASSNAME" "$pid_file" "$out_file" \
        "$HADOOP_LOG_DIR/$privileged-$HOSTNAME.err" "$wrapper_pid_file" "${HADOOP_SUBCMD_ARGS[@]}"
    hadoop_start_daemon "$HADOOP_SUBCMD" "$HADOOP_CLASSNAME" "$pid_file" "${HADOOP_SUBCMD_ARGS[@]}"
}
case $HADOOP_DAEMON_MODE in
    status) state ;;
    stop)
        [ -f "$pid_file" ] || exit 0
        pid=$(<"$pid_file")
        kill "$pid" 2>/dev/null
        for ((tenth = 0; tenth < 10 * HADOOP_STOP_TIMEOUT; tenth++)); do
            lives "$pid" || break
            sleep 0.1
        done
        kill -9 "$pid" 2>/dev/null
        for _ in {1..50}; do lives "$pid" || break; sleep 0.1; done
        rm -f "$pid_file" "$wrapper_pid_file"
        ;;
    start)
        if state; then
            hadoop_error "$HADOOP_SUBCMD is running as process $(<"$pid_file").  Stop it first."
            exit 1
        fi
        rm -f "$pid_file"
        start >>"$wrapper_out_file" 2>&1 </dev/null &
        for _ in {1..50}; do [ ! -f "$pid_file" ] || break; sleep 0.1; done
        echo $! >"$wrapper_pid_file"
        disown
        sleep 1
        lives $!
        ;;
    default) start ;;
esac
