//! Hadoop configuration files and the table of keys.
