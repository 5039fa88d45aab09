//! What the store does on its own: deletes, scanners, moves between volumes.

pub mod block_scanner;
pub mod directory_scanner;
pub mod idle_files;
pub mod invalidate;
pub mod move_replica;
pub mod scanner_cursor;
pub mod search_bad_disk;
pub mod settle_differences;
pub mod space_watch;
pub mod suspects;
pub mod take_over;
pub mod verify_replica;
