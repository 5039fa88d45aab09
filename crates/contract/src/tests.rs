//! What the contract demands stands in the header.

use super::*;

/// The header without the marks of its comments, on one line.
fn header() -> String {
    let header = include_str!("../../../plugins/hayloft_engine.h");
    let marks = |word: &&str| !matches!(*word, "*" | "/*" | "*/");
    let words: Vec<&str> = header.split_whitespace().filter(marks).collect();
    words.join(" ")
}

#[test]
fn each_case_has_its_sentence_in_the_header() {
    let header = header();
    for case in CONTRACT_CASES {
        assert!(
            header.contains(case.demand),
            "{} demands what plugins/hayloft_engine.h does not say: {}",
            case.name,
            case.demand
        );
    }
}

#[test]
fn a_breach_is_a_sentence() {
    let breach = Breach::of_bytes("read of 4 bytes at 8 on f", 8, b"abcd", b"abXY");
    let said = breach.expect("they differ").to_string();
    let wanted = "read of 4 bytes at 8 on f: expected the bytes 63 64 from byte 10 of the file \
                  on, came the bytes 58 59 (2 of 4 bytes differ)";
    assert_eq!(said, wanted);
    assert_eq!(Breach::of_bytes("read", 0, b"same", b"same"), None);
    let short = Breach::of_bytes("read", 0, b"a", b"");
    assert_eq!(
        short.expect("they differ").to_string(),
        "read: expected 1 byte, came 0 bytes"
    );
}

#[test]
fn a_panic_is_one_line() {
    let stopped = within(Duration::from_secs(5), || -> Result<(), String> {
        panic!("left: [1,\n right: 2");
    });
    let said = stopped.expect_err("it panicked");
    assert_eq!(said, "the case itself stopped: left: [1, right: 2");
}
