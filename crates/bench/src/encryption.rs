//! Runs in which the data of clients and nodes is encrypted.

use std::str::FromStr;

/// What encrypts data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchCipher {
    /// AES/CTR, whose key a handshake with 3DES hands over.
    Aes,
    /// 3DES of the privacy of SASL.
    TripleDes,
    /// RC4 of the privacy of SASL.
    Rc4,
}

impl BenchCipher {
    const ALL: [Self; 3] = [Self::Aes, Self::TripleDes, Self::Rc4];

    /// Its name on the command line and in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes => "aes",
            Self::TripleDes => "3des",
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
            Self::TripleDes => (ALGORITHM, "3des"),
            Self::Rc4 => (ALGORITHM, "rc4"),
        };
        [
            ("dfs.encrypt.data.transfer", "true"),
            ("dfs.block.access.token.enable", "true"),
            asked_for,
        ]
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
        }
        let refused = "des".parse::<BenchCipher>().expect_err("unknown");
        assert!(refused.contains("aes, 3des, rc4"), "{refused}");
    }
}
