//! Signature version 4 of AWS, for one `GET` without a body.
//!
//! Written from "AWS Signature Version 4 for API requests" in the IAM User Guide, whose example is
//! the test. AWS's own crate for it brings a dozen others; the hashes here are those of our TLS.

use ring::{digest, hmac};
use time::OffsetDateTime;

/// Credentials of a role, for a while.
pub(super) struct Credentials {
    pub key_id: String,
    pub secret: String,
    pub token: String,
}

/// What is asked of which service.
pub(super) struct SignedCall<'a> {
    /// `us-east-1`.
    pub region: &'a str,
    /// `ec2`.
    pub service: &'a str,
    /// Parameters in the order of their names, with nothing to escape.
    pub query: &'a str,
    /// Names in lower case, sorted, `host` and `x-amz-date` among them.
    pub headers: &'a [(&'a str, &'a str)],
}

/// `20150830T123600Z`.
pub(super) fn stamp(now: OffsetDateTime) -> String {
    let (hour, minute, second) = now.to_hms();
    let (year, month, day) = (now.year(), u8::from(now.month()), now.day());
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The header `Authorization`.
pub(super) fn authorization(
    call: &SignedCall<'_>,
    credentials: &Credentials,
    stamp: &str,
) -> String {
    let day = stamp.get(..8).unwrap_or_default();
    let names: Vec<&str> = call.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines = call.headers.iter();
    let lines: String = lines
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    let request = format!("GET\n/\n{}\n{lines}\n{names}\n{}", call.query, sha256(b""));
    let scope = format!("{day}/{}/{}/aws4_request", call.region, call.service);
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}",
        sha256(request.as_bytes())
    );
    let mut key = format!("AWS4{}", credentials.secret).into_bytes();
    for part in [day, call.region, call.service, "aws4_request"] {
        key = keyed(&key, part);
    }
    let signature = hex(&keyed(&key, &to_sign));
    let key_id = &credentials.key_id;
    format!(
        "AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={names}, \
         Signature={signature}"
    )
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the guide: `ListUsers` of IAM.
    #[test]
    fn the_example_of_the_guide_has_its_signature() {
        let credentials = Credentials {
            key_id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            token: String::new(),
        };
        let when = OffsetDateTime::from_unix_timestamp(1_440_938_160).expect("a time");
        let stamp = stamp(when);
        assert_eq!(stamp, "20150830T123600Z");
        let call = SignedCall {
            region: "us-east-1",
            service: "iam",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &[
                (
                    "content-type",
                    "application/x-www-form-urlencoded; charset=utf-8",
                ),
                ("host", "iam.amazonaws.com"),
                ("x-amz-date", &stamp),
            ],
        };
        let header = authorization(&call, &credentials, &stamp);
        assert!(
            header.ends_with(
                "SignedHeaders=content-type;host;x-amz-date, Signature=\
                 5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
            ),
            "{header}"
        );
    }
}
