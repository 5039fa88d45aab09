//! Properties with secrets in their values, which nothing shows.

use super::configuration::Configuration;
use super::{keys, patterns};

/// What stands for a secret.
const REDACTED: &str = "<redacted>";

impl Configuration {
    /// Whether the value of a property of this name is a secret, by the patterns of
    /// `hadoop.security.sensitive-config-keys`.
    fn names_of_secrets(&self) -> impl Fn(&str) -> bool {
        let list = self.get(&keys::SENSITIVE_CONFIG_KEYS);
        let all = list.split([',', '\n']).map(str::trim);
        let all = all.filter(|one| !one.is_empty());
        let secrets: Vec<_> = all.map(patterns::compiled).collect();
        // A pattern that is none stands for every name.
        move |name| {
            let mut all = secrets.iter();
            all.any(|of| of.as_ref().is_none_or(|of| of.is_match(name)))
        }
    }

    /// The values of properties by their names, as an operator may read them: without secrets, and
    /// values that refer to one are secrets too.
    pub fn shown(&self) -> impl Fn(&str) -> String {
        let is_named = self.names_of_secrets();
        move |name| {
            let mut referred = self.referred_by(name).into_iter();
            match is_named(name) || referred.any(|name| is_named(&name)) {
                true => REDACTED.to_owned(),
                false => self.text(name).unwrap_or_default(),
            }
        }
    }

    /// The same for callers of pages, which may not read the environment of the process. Values
    /// with some of it are as they are written, and so is everything if not `expanded`.
    pub fn shown_to_callers(&self, expanded: bool) -> impl Fn(&str) -> String {
        let (is_named, shown) = (self.names_of_secrets(), self.shown());
        move |name| {
            let referred = self.referred_by(name);
            let of_process = referred.iter().any(|name| name.starts_with("env."));
            match is_named(name) || (expanded && !of_process) {
                true => shown(name),
                false => self.raw(name).unwrap_or_default().to_owned(),
            }
        }
    }
}
