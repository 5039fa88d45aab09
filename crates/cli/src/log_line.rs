//! What is logged at a time is one line, and not too long: peers choose some of its words.

use std::io::{self, Write};

/// Most characters of a line.
const LINE_MAX: usize = 16 << 10;

/// Writes what it gets at a time as one line. What a peer said cannot look like a line of ours, nor
/// fill the disk.
#[derive(Debug)]
pub struct OneLine<W>(pub W);

/// Escapes are colours on terminals; those in words of peers do not come here.
fn plain(c: char) -> char {
    match c {
        '\t' | '\u{1b}' => c,
        c if c.is_control() => ' ',
        c => c,
    }
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let mut letters = text.chars().map(plain);
        let line: String = letters.by_ref().take(LINE_MAX).collect();
        let end = letters.next().map_or("\n", |_| " ...\n");
        self.0.write_all((line + end).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(event: &str) -> String {
        let mut log = OneLine(Vec::new());
        log.write_all(event.as_bytes()).expect("written");
        String::from_utf8(log.0).expect("text")
    }

    #[test]
    fn words_of_peers_make_no_lines() {
        assert_eq!(logged("a\tline\n"), "a\tline\n");
        let forged = logged("refused: x\r\n2026 INFO all is well\n");
        assert_eq!(forged, "refused: x  2026 INFO all is well\n");
        let long = logged(&"ä".repeat(LINE_MAX + 1));
        assert_eq!(long.chars().count(), LINE_MAX + " ...\n".len());
        assert!(long.ends_with("ä ...\n"));
        let fits = logged(&("ä".repeat(LINE_MAX) + "\n"));
        assert_eq!(fits.chars().count(), LINE_MAX + 1);
    }

    #[test]
    fn what_the_log_writes_at_a_time_is_one_line() {
        let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        struct Kept(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().expect("whole").write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let kept = std::sync::Arc::clone(&lines);
        let writer = move || OneLine(Kept(std::sync::Arc::clone(&kept)));
        let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(reason = %"a\nb", "closed: {}", "c\nd");
        });
        let text = String::from_utf8(lines.lock().expect("whole").clone()).expect("text");
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(text.contains("a b") && text.contains("c d"), "{text:?}");
    }
}
