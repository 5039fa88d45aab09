//! What Hadoop's own nodes do not pass either, and what is not run.

use crate::maven::{Verdict, Verdicts};

/// Tests and contracts that are not run, and why.
pub const LEFT_OUT: [(&str, &str); 7] = [
    ("contract LeaseRecovery", NO_INTERFACE),
    (
        "contract MultipartUploader",
        "needs path handles, which the client has not",
    ),
    ("contract PathHandle", NO_INTERFACE),
    ("contract SafeMode", NO_INTERFACE),
    ("contract StreamIOStatistics", NO_INTERFACE),
    ("contract Unbuffer", NO_INTERFACE),
    (
        "TestHttpsFileSystem",
        "writes beside its class, which lies in a jar; see swebhdfs",
    ),
];

const NO_INTERFACE: &str = "Hadoop's client of WebHDFS does not implement it";

/// `Class#method` that fails over stock nodes as well, and why.
const FAILS_ON_STOCK: [(&str, &str); 1] = [(
    "WebContracts$Open#testOpenReadDir",
    "the client asks at the first read",
)];

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
