//! The text that is searched: lines of letters, few of which hold a word of the expression, so that
//! the answer is known without a search.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What is searched for.
pub(super) const EXPRESSION: &str = "hay[a-z]+";
/// Bytes of a line, its end included.
const LINE_BYTES: usize = 64;
/// One line of so many holds a word.
const LINES_A_WORD: u64 = 1024;
/// Words, each half as often as the one before.
const WORDS: [&str; 5] = ["haystack", "hayrick", "hayfork", "haymow", "hayward"];
/// Letters of other words: none begins what is searched for.
const LETTERS: &[u8] = b"abcdefgijklmnopq";

/// The word in a line, if it holds one.
fn word(line: u64) -> Option<&'static str> {
    let number = line
        .is_multiple_of(LINES_A_WORD)
        .then(|| line / LINES_A_WORD + 1)?;
    WORDS
        .get(usize::try_from(number.trailing_zeros()).ok()?)
        .copied()
}

/// The lines of this many MiB.
fn lines(mib: u32) -> u64 {
    (u64::from(mib) << 20) / LINE_BYTES as u64
}

/// So many MiB of text.
pub(super) fn text(mib: u32) -> Vec<u8> {
    let mut text = Vec::new();
    // A small generator of numbers (xorshift): the text is the same in every run.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for line in 0..lines(mib) {
        let from = text.len();
        if let Some(word) = word(line) {
            text.extend_from_slice(word.as_bytes());
            text.push(b' ');
        }
        while text.len() - from + 1 < LINE_BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let blank = (text.len() - from) % 9 == 8;
            let letter = LETTERS[usize::from(state.to_le_bytes()[3]) % LETTERS.len()];
            text.push(if blank { b' ' } else { letter });
        }
        text.push(b'\n');
    }
    text
}

/// What the grep writes about so many files of this text: a line a word with its count, the most
/// frequent one first.
pub(super) fn answer(mib: u32, files: u64) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for word in (0..lines(mib)).filter_map(word) {
        *counts.entry(word).or_default() += files;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
        .iter()
        .fold(String::new(), |mut text, (word, count)| {
            let _ = writeln!(text, "{count}\t{word}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer by a search of the text itself.
    fn searched(text: &str, files: u64) -> Vec<(u64, String)> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (at, _) in text.match_indices("hay") {
            let rest = text[at..].chars();
            let found: String = rest.take_while(char::is_ascii_lowercase).collect();
            *counts.entry(found).or_default() += files;
        }
        let mut counts: Vec<_> = counts.into_iter().map(|(word, n)| (n, word)).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts
    }

    #[test]
    fn the_answer_is_what_a_search_finds_and_no_two_words_are_alike() {
        for (mib, files) in [(2, 1), (3, 4), (8, 4)] {
            let text = String::from_utf8(text(mib)).expect("letters");
            assert_eq!(text.len(), usize::try_from(mib).unwrap() << 20);
            let found = searched(&text, files);
            let said: String = found
                .iter()
                .map(|(count, word)| format!("{count}\t{word}\n"))
                .collect();
            assert_eq!(answer(mib, files), said, "{mib}");
            assert_eq!(found.len(), WORDS.len());
            let alike = found.windows(2).any(|two| two[0].0 == two[1].0);
            assert!(!alike, "equal counts have no order: {found:?}");
        }
    }
}
