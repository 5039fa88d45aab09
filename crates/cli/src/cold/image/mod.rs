//! A NameNode's image of its namespace, read from its file.
//!
//! The protobuf file itself, not what `hdfs oiv` makes of it: `oiv` needs a JVM and hours, or a
//! database on disk, for a large image; its Delimited form cuts times to minutes of the local time
//! zone and tells no storage policy. The format is kept compatible by Hadoop since 2.4, because
//! every NameNode starts from it. The messages are compared with Hadoop's own descriptors.

mod directories;
mod file;
mod scan;

pub use file::Image;
pub use scan::scan;

#[cfg(test)]
mod made;
#[cfg(test)]
mod tests;
