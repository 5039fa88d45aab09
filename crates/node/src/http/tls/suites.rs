//! Cipher suites by the names that Java has for them.

use hayloft_conf::Configuration;
use rustls::SupportedCipherSuite;
use rustls::crypto::CryptoProvider;

const INCLUDE: &str = "ssl.server.include.cipher.list";
const EXCLUDE: &str = "ssl.server.exclude.cipher.list";

/// Which suites may be used; what is in the lists beyond those of rustls changes nothing.
#[derive(Debug, Default)]
pub(super) struct Suites {
    /// Only these, unless it is empty.
    included: Vec<String>,
    /// Not these.
    excluded: Vec<String>,
}

impl Suites {
    /// Of `ssl-server.xml`.
    pub(super) fn of(server: &Configuration) -> Self {
        let list = |key| {
            let text = server.text(key).unwrap_or_default();
            let names = text.split([',', '\n']).map(str::trim);
            let names = names.filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        Self {
            included: list(INCLUDE),
            excluded: list(EXCLUDE),
        }
    }

    /// rustls with these suites alone.
    ///
    /// # Errors
    /// None is left.
    pub(super) fn provider(&self) -> Result<CryptoProvider, String> {
        let mut provider = rustls::crypto::ring::default_provider();
        let all: Vec<String> = provider.cipher_suites.iter().map(java_name).collect();
        provider.cipher_suites.retain(|suite| {
            let name = java_name(suite);
            let included = self.included.is_empty() || self.included.contains(&name);
            included && !self.excluded.contains(&name)
        });
        if provider.cipher_suites.is_empty() {
            return Err(format!(
                "{INCLUDE} and {EXCLUDE} leave no cipher suite: allow one of {}",
                all.join(", ")
            ));
        }
        Ok(provider)
    }
}

/// rustls marks those of TLS 1.3, Java does not.
fn java_name(suite: &SupportedCipherSuite) -> String {
    let name = suite.suite().as_str().unwrap_or_default();
    name.replacen("TLS13_", "TLS_", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(included: &[&str], excluded: &[&str]) -> Result<Vec<String>, String> {
        let list = |of: &[&str]| of.iter().map(|&name| name.to_owned()).collect();
        let suites = Suites {
            included: list(included),
            excluded: list(excluded),
        };
        let provider = suites.provider()?;
        Ok(provider.cipher_suites.iter().map(java_name).collect())
    }

    #[test]
    fn lists_leave_what_they_say() {
        const GCM: &str = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
        const OF_1_3: &str = "TLS_AES_128_GCM_SHA256";
        let all = left(&[], &[]).expect("all");
        assert!(all.iter().any(|name| name == GCM) && all.iter().any(|name| name == OF_1_3));
        let fewer = left(&[], &[GCM, "SSL_RSA_WITH_DES_CBC_SHA"]).expect("most");
        assert!(fewer.len() == all.len() - 1 && !fewer.iter().any(|name| name == GCM));
        assert_eq!(left(&[GCM, OF_1_3], &[OF_1_3]), Ok(vec![GCM.to_owned()]));
        let none = left(&["SSL_RSA_WITH_DES_CBC_SHA"], &[]).expect_err("none");
        assert!(none.contains(EXCLUDE) && none.contains(GCM), "{none}");
    }

    #[test]
    fn names_in_lists_are_trimmed() {
        let server = [("ssl.server.exclude.cipher.list", " A,\n  B ,, C\n")];
        let server = Configuration::from_properties(server).expect("valid");
        let suites = Suites::of(&server);
        assert_eq!(suites.excluded, ["A", "B", "C"]);
        assert!(suites.included.is_empty());
    }
}
