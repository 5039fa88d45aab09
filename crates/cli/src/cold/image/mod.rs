//! A NameNode's image of its namespace, read from its file.
//!
//! - `directories`: the directories of an image, and how they are linked
//! - `file`: the file of an image: its summary and its sections
//! - `scan`: the scan of an image: directories first, then the files, some millions at a time
//! - `made`: images made for tests, with the messages that Hadoop's have
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
