//! Rows whose data is encrypted between clients and nodes, beside the same rows in clear.

use std::fmt;
use std::str::FromStr;

/// What encrypts data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BenchCipher {
    /// AES/CTR, whose key a handshake with 3DES hands over.
    Aes,
    /// The privacy of SASL, by its 3DES.
    Privacy,
    /// The privacy of SASL, by its RC4.
    Rc4,
}

impl BenchCipher {
    /// Every cipher.
    pub const ALL: [Self; 3] = [Self::Aes, Self::Privacy, Self::Rc4];

    /// Its name on the command line and in rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes => "aes",
            Self::Privacy => "privacy",
            Self::Rc4 => "rc4",
        }
    }

    /// Properties of NameNode, nodes and clients.
    #[must_use]
    pub const fn conf(self) -> [(&'static str, &'static str); 3] {
        const ALGORITHM: &str = "dfs.encrypt.data.transfer.algorithm";
        const SUITES: &str = "dfs.encrypt.data.transfer.cipher.suites";
        let asked_for = match self {
            Self::Aes => (SUITES, "AES/CTR/NoPadding"),
            Self::Privacy => (ALGORITHM, "3des"),
            Self::Rc4 => (ALGORITHM, "rc4"),
        };
        [
            ("dfs.encrypt.data.transfer", "true"),
            ("dfs.block.access.token.enable", "true"),
            asked_for,
        ]
    }

    /// A row with it moves one in so many bytes of what the row in clear moves. The ciphers of SASL
    /// are so slow that less tells as much.
    #[must_use]
    pub const fn divisor(self) -> u64 {
        match self {
            Self::Aes => 1,
            Self::Privacy | Self::Rc4 => 16,
        }
    }

    /// The workload that `name` begins with, and the cipher that it ends with.
    #[must_use]
    pub fn of_row(name: &str) -> (&str, Option<Self>) {
        let split = name.rsplit_once('-').map(|(row, end)| (row, end.parse()));
        match split {
            Some((row, Ok(cipher))) => (row, Some(cipher)),
            _ => (name, None),
        }
    }
}

impl fmt::Display for BenchCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BenchCipher {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|cipher| cipher.name() == name);
        found.ok_or_else(|| {
            format!(
                "{name:?} is none of {}",
                Self::ALL.map(Self::name).join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_is_found_by_its_name() {
        for cipher in BenchCipher::ALL {
            assert_eq!(cipher.name().parse(), Ok(cipher));
            let row = format!("write-1-{cipher}");
            assert_eq!(BenchCipher::of_row(&row), ("write-1", Some(cipher)));
        }
        assert_eq!(BenchCipher::of_row("read-back"), ("read-back", None));
        let refused = "des".parse::<BenchCipher>().expect_err("unknown");
        assert!(refused.contains("aes, privacy, rc4"), "{refused}");
    }
}
