//! The short names of users.
//!
//! With Kerberos, callers have the names of their principals, and short names by
//! `hadoop.security.auth_to_local`. Without, a short name is what comes before `/` and `@`.

use hayloft_client::login;
use hayloft_conf::Configuration;
use hayloft_rpc::security::name_rules::NameRules;

/// How users are called.
#[derive(Debug)]
pub(crate) enum ShortNames {
    /// By what comes before `/` and `@`.
    Cut,
    /// By rules. The start has refused unusable ones; with an error no caller has a name.
    Rules(Result<NameRules, String>),
}

impl ShortNames {
    /// As callers of the RPC port are called.
    pub(crate) fn new(config: &Configuration) -> Self {
        if !config.has_kerberos() {
            return Self::Cut;
        }
        Self::of_principals(config)
    }

    /// As principals are called, whether RPC has Kerberos or not.
    pub(crate) fn of_principals(config: &Configuration) -> Self {
        Self::Rules(login::name_rules(config))
    }

    /// The short name of a user.
    ///
    /// # Errors
    /// When no rule applies, or the rules cannot be used; in words for the operator.
    pub(crate) fn of(&self, user: &str) -> Result<String, String> {
        match self {
            Self::Cut => {
                let short = user.split(['/', '@']).next();
                Ok(short.unwrap_or(user).to_owned())
            }
            Self::Rules(Ok(rules)) => rules.short_name(user),
            Self::Rules(Err(why)) => Err(why.clone()),
        }
    }
}
