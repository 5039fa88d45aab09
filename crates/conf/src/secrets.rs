//! Properties with secrets in their values, which nothing shows.

use super::configuration::Configuration;
use super::{keys, patterns};

/// What stands for a secret.
const REDACTED: &str = "<redacted>";

impl Configuration {
    /// The values of properties by their names, as what strangers may read shows them.
    /// `hadoop.security.sensitive-config-keys` has patterns of names whose values are secrets; so
    /// are values that refer to one of them.
    pub fn shown(&self) -> impl Fn(&str) -> String {
        let list = self.get(&keys::SENSITIVE_CONFIG_KEYS);
        let all = list.split([',', '\n']).map(str::trim);
        let all = all.filter(|one| !one.is_empty());
        let secrets: Vec<_> = all.map(patterns::compiled).collect();
        // A pattern that is none stands for every name.
        let is_named = move |name: &str| {
            let mut all = secrets.iter();
            all.any(|of| of.as_ref().is_none_or(|of| of.is_match(name)))
        };
        move |name| {
            let mut referred = self.referred_by(name).into_iter();
            match is_named(name) || referred.any(|name| is_named(&name)) {
                true => REDACTED.to_owned(),
                false => self.text(name).unwrap_or_default(),
            }
        }
    }
}
