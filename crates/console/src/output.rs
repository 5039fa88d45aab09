//! What is printed, and the one place where a reader that has left ends the command.
//!
//! The macros here take the place of the standard library's in the commands: those panic where
//! the pipe is closed. SIGPIPE stays ignored, as every command has sockets that others may close.

use std::fmt;
use std::io::{self, Write as _};
use std::process;

/// Exit code of a command whose standard output was closed: what shells make of a filter that
/// SIGPIPE ended.
const CLOSED: i32 = 128 + 13;
/// Exit code of a command that its environment does not let work.
const USAGE: i32 = 2;

/// Prints to standard output. The process ends, without a word, once its reader has left.
///
/// Other errors, as of a full disk under a file, are said and end it too.
pub fn out(text: fmt::Arguments<'_>) {
    let printed = io::stdout().lock().write_fmt(text);
    if let Err(error) = printed {
        give_up(&error);
    }
}

fn give_up(error: &io::Error) -> ! {
    if error.kind() == io::ErrorKind::BrokenPipe {
        process::exit(CLOSED);
    }
    err(format_args!("hayloft: error: cannot print: {error}\n"));
    process::exit(USAGE);
}

/// Prints to standard error. Work goes on without a reader: its result may be elsewhere.
pub fn err(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Prints to standard output, see [`out`].
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::output::out(format_args!($($text)*)) };
}

/// Prints a line to standard output, see [`out`].
#[macro_export]
macro_rules! println {
    () => { $crate::output::out(format_args!("\n")) };
    ($($text:tt)*) => {
        $crate::output::out(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Prints to standard error, see [`err`].
#[macro_export]
macro_rules! eprint {
    ($($text:tt)*) => { $crate::output::err(format_args!($($text)*)) };
}

/// Prints a line to standard error, see [`err`].
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => {
        $crate::output::err(format_args!("{}\n", format_args!($($text)*)))
    };
}
