# Hayloft for Hadoop's shell: with this file in shellprofile.d, `hdfs datanode` and
# `hdfs --daemon start|stop|status datanode` mean Hayloft's node. Without it they mean Apache's.
#
# Hadoop 3 sources it (its UnixShellGuide). All else stays Hadoop's: hadoop-env.sh, the pid file,
# the .out file, who may start it, and how it is stopped. `hayloft swap in` puts it there.

# The program, which hadoop-env.sh may name.
HAYLOFT=${HAYLOFT:-/usr/bin/hayloft}

hdfs_subcommand_datanode() {
    if [[ -n ${HDFS_DATANODE_SECURE_USER:-} ]]; then
        hadoop_error "ERROR: hayloft: HDFS_DATANODE_SECURE_USER asks for jsvc and ports below" \
            "1024: unset it and use dfs.data.transfer.protection, or remove ${BASH_SOURCE[0]}"
        exit 1
    fi
    if [[ ! -x ${HAYLOFT} ]]; then
        hadoop_error "ERROR: hayloft: ${HAYLOFT} is no program: install it, set HAYLOFT in" \
            "hadoop-env.sh, or remove ${BASH_SOURCE[0]}"
        exit 1
    fi
    # Both are read by Hadoop's functions.
    # shellcheck disable=SC2034
    HADOOP_SUBCMD_SUPPORTDAEMONIZATION=true
    # shellcheck disable=SC2034
    HADOOP_CLASSNAME=io.hayloft.Node

    # Hadoop calls it in the process that becomes the node, as its own for a JVM: the subcommand,
    # the class, the pid file, the node's arguments.
    hadoop_start_daemon() {
        local pid_file=$3
        shift 3
        echo $$ 2>/dev/null >"${pid_file}" ||
            hadoop_error "ERROR:  Cannot write datanode pid ${pid_file}."
        unset HAYLOFT_LOG_FILE
        if [[ ${HADOOP_DAEMON_MODE} != default ]]; then
            export HAYLOFT_LOG_FILE="${HADOOP_LOG_DIR}/${HADOOP_LOGFILE}"
        fi
        export HADOOP_CONF_DIR HADOOP_LOG_DIR
        # A JVM's options are looked at for what has no effect here.
        export HDFS_DATANODE_OPTS
        exec "${HAYLOFT}" node --conf "${HADOOP_CONF_DIR}" "$@"
    }
}
