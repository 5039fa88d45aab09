//! What Hadoop's own nodes do not pass either, and what is not run.

use crate::maven::{Verdict, Verdicts};

/// Tests and contracts that are not run, and why.
pub const LEFT_OUT: [(&str, &str); 7] = [
    ("contract LeaseRecovery", NO_INTERFACE),
    (
        "contract MultipartUploader",
        "it needs path handles, which Hadoop's client of WebHDFS does not have",
    ),
    ("contract PathHandle", NO_INTERFACE),
    ("contract SafeMode", NO_INTERFACE),
    ("contract StreamIOStatistics", NO_INTERFACE),
    ("contract Unbuffer", NO_INTERFACE),
    (
        "TestHttpsFileSystem",
        "it writes beside its class, which lies in a jar: the contracts over swebhdfs stand for it",
    ),
];

const NO_INTERFACE: &str = "Hadoop's client of WebHDFS does not implement it";
const LAZY: &str = "the client asks the node at the first read, not when it opens a file";
const OTHER_ERROR: &str = "the client's error is not the EOFException that the contract wants";

/// `Class#method` that fails over stock nodes as well, and why.
const FAILS_ON_STOCK: [(&str, &str); 7] = [
    ("WebContracts$Open#testOpenReadDir", LAZY),
    ("WebContracts$Open#testOpenReadDirWithChild", LAZY),
    (
        "WebContracts$Seek#testSeekReadClosedFile",
        "the client seeks in a stream that is closed",
    ),
    (
        "WebContracts$Seek#testNegativeSeek",
        "the client seeks before the start, and complains at the read",
    ),
    ("WebContracts$Seek#testReadFullyPastEOF", OTHER_ERROR),
    (
        "WebContracts$Seek#testSeekPastEndOfFileThenReseekAndRead",
        OTHER_ERROR,
    ),
    ("WebContracts$VectoredRead#testEOFRanges", OTHER_ERROR),
];

/// Why a test may fail, when it fails over stock nodes too.
pub fn reason(name: &str) -> Option<&'static str> {
    let entry = FAILS_ON_STOCK.iter().find(|(known, _)| *known == name);
    entry.map(|(_, why)| *why)
}

/// What is listed here and has passed.
pub fn stale(verdicts: &Verdicts) -> Vec<String> {
    let listed = FAILS_ON_STOCK.iter();
    let passed = listed.filter(|(name, _)| verdicts.get(*name) == Some(&Verdict::Passed));
    passed
        .map(|(name, _)| format!("{name} passes: take it out of known.rs"))
        .collect()
}
