# Hayloft for Hadoop's shell: with this file in shellprofile.d, `hdfs datanode` and
# `hdfs --daemon start|stop|status datanode` mean Hayloft's node. Without it they mean Apache's.
#
# Hadoop 3 sources it (its UnixShellGuide). All else stays Hadoop's: hadoop-env.sh, the pid file,
# the .out file, who may start it, and how it is stopped. `hayloft swap in` puts it there.

# The program, which hadoop-env.sh may name.
HAYLOFT=${HAYLOFT:-/usr/bin/hayloft}

hdfs_subcommand_datanode() {
    # None is needed to stop a node, nor where `--workers` has other hosts start theirs.
    if [[ ${HADOOP_DAEMON_MODE} =~ ^(start|default)$ && ${HADOOP_WORKER_MODE} != true &&
        ! -x ${HAYLOFT} ]]; then
        hadoop_error "ERROR: hayloft: ${HAYLOFT} is no program: install it, set HAYLOFT in" \
            "hadoop-env.sh, or remove ${BASH_SOURCE[0]}"
        exit 1
    fi
    # These are read by Hadoop's functions. The second of the classes is for a start as root with
    # HDFS_DATANODE_SECURE_USER.
    # shellcheck disable=SC2034
    HADOOP_SUBCMD_SUPPORTDAEMONIZATION=true
    # shellcheck disable=SC2034
    HADOOP_CLASSNAME=io.hayloft.Node
    # shellcheck disable=SC2034
    HADOOP_SECURE_CLASSNAME=io.hayloft.Node
    hadoop_deprecate_envvar HADOOP_SECURE_DN_PID_DIR HADOOP_SECURE_PID_DIR
    hadoop_deprecate_envvar HADOOP_SECURE_DN_LOG_DIR HADOOP_SECURE_LOG_DIR
    # A node has stopped within 10 s. Hadoop's default kills it after 5.
    if [[ ${HADOOP_STOP_TIMEOUT} =~ ^([0-9]|1[0-4])$ ]]; then
        HADOOP_STOP_TIMEOUT=15
    fi

    # Makes this process the node.
    hayloft_become_node() {
        unset HAYLOFT_LOG_FILE
        if [[ ${HADOOP_DAEMON_MODE} != default ]]; then
            export HAYLOFT_LOG_FILE="${HADOOP_LOG_DIR}/${HADOOP_LOGFILE}"
        fi
        export HADOOP_CONF_DIR HADOOP_LOG_DIR
        # A JVM's options are looked at for what has no effect here.
        export HDFS_DATANODE_OPTS
        # By this mark Hadoop's `--daemon status` and `start` know the process of the pid file.
        exec "${HAYLOFT}" node -Dproc_datanode --conf "${HADOOP_CONF_DIR}" "$@"
    }

    # Hadoop calls it in the process that becomes the node, as its own for a JVM: the subcommand,
    # the class, the pid file, the node's arguments.
    hadoop_start_daemon() {
        local pid_file=$3
        shift 3
        echo $$ 2>/dev/null >"${pid_file}" ||
            hadoop_error "ERROR:  Cannot write datanode pid ${pid_file}."
        hayloft_become_node "$@"
    }

    # The same as root, as its own for jsvc: after the pid file come those of output and errors, and
    # the pid file of the process that stays root. There is none: the node itself becomes the user.
    hadoop_start_secure_daemon() {
        local pid_file=$3 out_file=$4 error_file=$5 privileged_pid_file=$6 file
        shift 6
        hadoop_rotate_log "${out_file}"
        hadoop_rotate_log "${error_file}"
        # The shell that $$ names may be this one's parent.
        for file in "${privileged_pid_file}" "${pid_file}"; do
            echo "${BASHPID}" 2>/dev/null >"${file}" ||
                hadoop_error "ERROR:  Cannot write datanode pid ${file}."
        done
        export HDFS_DATANODE_SECURE_USER
        export USER=${HDFS_DATANODE_SECURE_USER} LOGNAME=${HDFS_DATANODE_SECURE_USER}
        hayloft_become_node "$@" >>"${out_file}" 2>>"${error_file}"
    }
}
