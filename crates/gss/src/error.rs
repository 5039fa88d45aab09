//! What failed, and what to do about it.

use super::keytab::KeytabError;

/// Why Kerberos does not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GssError {
    /// The shared object cannot be opened.
    #[error(
        "Kerberos needs {name}, which cannot be opened ({reason}): install libgssapi-krb5-2 on \
         Debian and Ubuntu, krb5-libs on RHEL and its kin"
    )]
    NoLibrary {
        /// Its name.
        name: &'static str,
        /// What the system said.
        reason: String,
    },
    /// The library refused.
    #[error("{what}: {text}{}", hint(*.code, .text))]
    Failed {
        /// What was tried.
        what: &'static str,
        /// Kerberos' own number of the reason; 0 when there is none.
        code: i32,
        /// The library's words.
        text: String,
    },
    /// The keytab is of no use.
    #[error(transparent)]
    Keytab(#[from] KeytabError),
    /// The ticket has run out.
    #[error("the ticket of {principal} has run out: run kinit again")]
    Expired {
        /// Whose it was.
        principal: String,
    },
    /// krb5.conf names no default realm.
    #[error(
        "krb5.conf cannot be read or has no default_realm in [libdefaults]: set it, or write \
         principals with their @REALM"
    )]
    NoRealm,
    /// A name that C cannot hold.
    #[error("a name for Kerberos has a zero byte in it")]
    ZeroByte,
    /// A message has to be encrypted, and was not.
    #[error("the Kerberos library cannot encrypt with the keys at hand")]
    NotSecret,
    /// A message came twice, late or too early.
    #[error("a wrapped message came again or out of order")]
    OutOfOrder,
    /// The two sides did not agree on what protects a connection.
    #[error(
        "the exchange of Kerberos tokens ended without a proof of the server, or without \
         encryption, checksums or numbers for messages where these are demanded"
    )]
    Unprotected,
    /// The peer takes messages of a few bytes.
    #[error("the peer takes wrapped messages of {0} bytes at most, which is too little")]
    SmallMessages(u32),
    /// Something is to be wrapped before the exchange is over.
    #[error("the exchange of Kerberos tokens is not complete")]
    Incomplete,
}

impl GssError {
    pub(super) fn failed(what: &'static str, code: i32, text: String) -> Self {
        Self::Failed { what, code, text }
    }
}

/// Kerberos numbers its errors from here on (`ERROR_TABLE_BASE_krb5`).
const BASE: i32 = -1_765_328_384;

/// What to do about an error, by its number in krb5.h.
fn hint(code: i32, text: &str) -> &'static str {
    match code.wrapping_sub(BASE) {
        // KDC_ERR_C_PRINCIPAL_UNKNOWN, KDC_ERR_S_PRINCIPAL_UNKNOWN
        6 => {
            ": the KDC does not know this node's principal: add it there, or correct \
              dfs.datanode.kerberos.principal"
        }
        7 => {
            ": the KDC does not know the server's principal: compare \
              dfs.namenode.kerberos.principal with the KDC's list"
        }
        // KDC_ERR_ETYPE_NOSUPP, KRB5_BAD_ENCTYPE, KRB5_PROG_ETYPE_NOSUPP, KRB5_KT_KVNONOTFOUND
        14 | 188 | 150 | 229 => {
            ": the keytab or the KDC has no key of an encryption type that both \
              allow: export the keytab again with aes256-cts and aes128-cts"
        }
        // KDC_ERR_PREAUTH_FAILED, AP_ERR_BAD_INTEGRITY
        24 | 31 => ": the key in the keytab is not the KDC's: export the keytab again",
        // AP_ERR_TKT_EXPIRED
        32 => ": the ticket has run out: run kinit, or look why the node cannot log in again",
        // KDC_ERR_NEVER_VALID, AP_ERR_TKT_NYV, AP_ERR_SKEW, KDCREP_SKEW
        11 | 33 | 37 | 148 => {
            ": the clocks of this host and of the KDC, or of a caller, differ by more than \
              Kerberos allows: correct them (chrony or ntpd)"
        }
        // KRB5_REALM_UNKNOWN, KRB5_REALM_CANT_RESOLVE
        153 | 154 => {
            ": no KDC of that realm is found: name it in [realms] of krb5.conf, or correct \
              DNS"
        }
        // KRB5_KDC_UNREACH
        156 => ": no KDC answers: see that it runs, and that port 88 is open from here",
        // KRB5_FCC_NOFILE, KRB5_CC_NOTFOUND
        195 | 141 => ": there is no ticket: run kinit, or point KRB5CCNAME to the cache",
        // KRB5_KT_NOTFOUND
        181 => ": the keytab has no usable key of that principal: list it with klist -ekt",
        _ if text.contains("No Kerberos credentials available") => {
            ": there is no ticket: run kinit, or point KRB5CCNAME to the cache"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_mistakes_say_what_to_do() {
        for (code, words) in [
            (-1_765_328_347, "clocks"),
            (-1_765_328_236, "clocks"),
            (-1_765_328_228, "no KDC answers"),
            (-1_765_328_378, "does not know this node's principal"),
            (-1_765_328_377, "does not know the server's"),
            (-1_765_328_230, "no KDC of that realm"),
            (-1_765_328_360, "export the keytab again"),
            (-1_765_328_370, "encryption type"),
            (-1_765_328_189, "run kinit"),
            (-1_765_328_203, "klist -ekt"),
        ] {
            let told = GssError::failed("trying", code, "Words".to_owned()).to_string();
            assert!(
                told.starts_with("trying: Words: ") && told.contains(words),
                "{told}"
            );
        }
        let plain = GssError::failed("trying", 0, "Words".to_owned());
        assert_eq!(plain.to_string(), "trying: Words");
    }
}
