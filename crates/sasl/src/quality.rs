//! What a connection protects, and with which cipher.

/// What a connection protects. Each keeps what the one before it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SaslQuality {
    /// Both sides know who is there; bytes go as they are.
    Authentication,
    /// Bytes that were changed are noticed.
    Integrity,
    /// Bytes are encrypted, too.
    Privacy,
}

impl SaslQuality {
    const ALL: [Self; 3] = [Self::Authentication, Self::Integrity, Self::Privacy];

    /// Its name in SASL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Authentication => "auth",
            Self::Integrity => "auth-int",
            Self::Privacy => "auth-conf",
        }
    }

    /// The one of this name in SASL.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|quality| name.eq_ignore_ascii_case(quality.name()))
    }
}

/// The cipher of [`SaslQuality::Privacy`]. RFC 2831 has weaker ones, which are not spoken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerCipher {
    /// DES three times with two keys, in CBC mode.
    TripleDes,
    /// RC4 with a key of 128 bits.
    Rc4,
}

impl LayerCipher {
    /// Both, the preferred one first.
    pub const ALL: [Self; 2] = [Self::TripleDes, Self::Rc4];

    /// Its name in DIGEST-MD5 and in `dfs.encrypt.data.transfer.algorithm`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TripleDes => "3des",
            Self::Rc4 => "rc4",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|cipher| name.eq_ignore_ascii_case(cipher.name()))
    }
}

/// `names` with commas between.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(",")
}
