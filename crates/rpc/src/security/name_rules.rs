//! `hadoop.security.auth_to_local`: the short names of principals.
//!
//! Rules are tried in order. `DEFAULT` takes the first part of a principal of the default realm.
//! `RULE:[n:format](pattern)s/from/to/g/L` is for principals of `n` parts before the realm. The
//! format is filled in, with `$0` for the realm and `$1`, `$2` for the parts. The pattern has to
//! match all of it; then the substitution is made, once or (`g`) everywhere, and with `L` the
//! result is in lower case. Pattern, substitution, `g` and `L` may be left out.
//!
//! What Java finds wrong when a name comes is refused here when the rules are read: parts and
//! groups that are not there. So are patterns that only Java's engine has, such as look-behind.

use regex::Regex;

/// Rules that are kept, at most.
const RULES_MAX: usize = 10_000;
/// Size of a compiled pattern, bytes.
const PATTERN_BYTES: usize = 1 << 20;

/// How to make short names of principals.
#[derive(Clone, Debug)]
pub struct NameRules {
    rules: Vec<Rule>,
    default_realm: String,
    /// `hadoop.security.auth_to_local.mechanism` is `mit`: names may have `/` and `@`.
    mit: bool,
}

#[derive(Clone, Debug)]
enum Rule {
    Default { lower: bool },
    Format(Box<Format>),
}

#[derive(Clone, Debug)]
struct Format {
    parts: usize,
    format: Vec<Piece>,
    matches: Option<Regex>,
    substitution: Option<(Regex, String, bool)>,
    lower: bool,
    text: String,
}

/// What a format is made of.
#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    /// The realm for 0, else a part.
    Value(usize),
}

/// The service, the host if there is one, and the realm of a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts<'a> {
    service: &'a str,
    host: Option<&'a str>,
    realm: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(principal: &'a str) -> Option<Self> {
        let (name, realm) = match principal.split_once('@') {
            Some((name, realm)) if !realm.is_empty() && !realm.contains(['@', '/']) => {
                (name, Some(realm))
            }
            Some(_) => return None,
            None => (principal, None),
        };
        let (service, host) = match name.split_once('/') {
            Some((service, host)) => (service, Some(host)),
            None => (name, None),
        };
        let bad_host = host.is_some_and(|host| host.is_empty() || host.contains('/'));
        (!service.is_empty() && !bad_host).then_some(Self {
            service,
            host,
            realm,
        })
    }
}

impl NameRules {
    /// Reads rules. `mechanism` is `hadoop` or `mit`.
    ///
    /// # Errors
    /// Which rule is wrong, and how.
    pub fn parse(text: &str, mechanism: &str, default_realm: &str) -> Result<Self, String> {
        let mit = match mechanism.trim() {
            of if of.eq_ignore_ascii_case("hadoop") => false,
            of if of.eq_ignore_ascii_case("mit") => true,
            of => {
                return Err(format!(
                    "auth_to_local.mechanism is {of}: it takes hadoop or mit"
                ));
            }
        };
        let mut rest = text.trim_start();
        let mut rules = Vec::new();
        while !rest.is_empty() {
            if rules.len() == RULES_MAX {
                return Err(format!("more than {RULES_MAX} rules"));
            }
            let (rule, after) = Rule::parse(rest).map_err(|why| {
                let shown: String = rest.lines().next().unwrap_or_default().chars().collect();
                format!("{why} in the rule that begins at {shown:?}")
            })?;
            rules.push(rule);
            rest = after.trim_start();
        }
        if rules.is_empty() {
            rules.push(Rule::Default { lower: false });
        }
        Ok(Self {
            rules,
            default_realm: default_realm.to_owned(),
            mit,
        })
    }

    /// The short name of a principal.
    ///
    /// # Errors
    /// No rule is for it, or the rule that is makes no simple name.
    pub fn short_name(&self, principal: &str) -> Result<String, String> {
        let parts = Parts::of(principal)
            .ok_or_else(|| format!("Malformed Kerberos name: {}", principal.escape_debug()))?;
        let Some(realm) = parts.realm else {
            if parts.host.is_none() {
                return Ok(parts.service.to_owned());
            }
            return Err(format!("No rules applied to {principal}"));
        };
        let values = [Some(realm), Some(parts.service), parts.host];
        for rule in &self.rules {
            let Some(name) = rule.apply(values, &self.default_realm) else {
                continue;
            };
            if !self.mit && name.contains(['/', '@']) {
                return Err(format!(
                    "Non-simple name {name} after auth_to_local rule {}",
                    rule.text()
                ));
            }
            return Ok(name);
        }
        if self.mit {
            return Ok(principal.to_owned());
        }
        Err(format!("No rules applied to {principal}"))
    }
}

impl Rule {
    fn parse(text: &str) -> Result<(Self, &str), String> {
        if let Some(rest) = text.strip_prefix("DEFAULT") {
            let (lower, rest) = lower(rest);
            return Ok((Self::Default { lower }, rest));
        }
        let Some(rest) = text.strip_prefix("RULE:[") else {
            return Err("neither RULE:[...] nor DEFAULT".to_owned());
        };
        let (parts, rest) = rest
            .split_once(':')
            .ok_or("no colon after the number of parts")?;
        let parts: usize = parts
            .parse()
            .map_err(|_| format!("{parts:?} is no number of parts"))?;
        let (format, mut rest) = rest.split_once(']').ok_or("no ] after the format")?;
        let mut matches = None;
        if let Some(inside) = rest.strip_prefix('(') {
            let (pattern, after) = inside.split_once(')').ok_or("no ) after the pattern")?;
            matches = Some(compile(&format!("^(?:{pattern})$"))?);
            rest = after;
        }
        let mut substitution = None;
        if let Some(inside) = rest.strip_prefix("s/") {
            let (from, after) = inside.split_once('/').ok_or("no second / of s/from/to/")?;
            let (to, after) = after.split_once('/').ok_or("no third / of s/from/to/")?;
            let everywhere = after.strip_prefix('g');
            let from = compile(from)?;
            let to = replacement(to, from.captures_len() - 1)?;
            substitution = Some((from, to, everywhere.is_some()));
            rest = everywhere.unwrap_or(after);
        }
        let (lower, rest) = lower(rest);
        let length = text.len() - rest.len();
        let rule = Format {
            parts,
            format: pieces(format, parts)?,
            matches,
            substitution,
            lower,
            text: text.get(..length).unwrap_or_default().to_owned(),
        };
        Ok((Self::Format(Box::new(rule)), rest))
    }

    fn text(&self) -> &str {
        match self {
            Self::Default { .. } => "DEFAULT",
            Self::Format(rule) => &rule.text,
        }
    }

    /// The name that the rule makes, if it is for a principal of these values: realm, parts.
    fn apply(&self, values: [Option<&str>; 3], default_realm: &str) -> Option<String> {
        let (name, lower) = match self {
            Self::Default { lower } => {
                let ours = values[0] == Some(default_realm);
                (ours.then_some(values[1]).flatten()?.to_owned(), *lower)
            }
            Self::Format(rule) => {
                if values.iter().flatten().count() - 1 != rule.parts {
                    return None;
                }
                let base = filled_in(&rule.format, values)?;
                if rule
                    .matches
                    .as_ref()
                    .is_some_and(|pattern| !pattern.is_match(&base))
                {
                    return None;
                }
                let name = match &rule.substitution {
                    None => base,
                    Some((from, to, true)) => from.replace_all(&base, to).into_owned(),
                    Some((from, to, false)) => from.replace(&base, to).into_owned(),
                };
                (name, rule.lower)
            }
        };
        Some(if lower { name.to_lowercase() } else { name })
    }
}

/// What stands between rules: a `/` of a substitution's end, and `L`.
fn lower(rest: &str) -> (bool, &str) {
    let after = rest.strip_prefix('/').unwrap_or(rest);
    after
        .strip_prefix('L')
        .map_or((false, after), |after| (true, after))
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let made = regex::RegexBuilder::new(pattern)
        .size_limit(PATTERN_BYTES)
        .build();
    made.map_err(|error| format!("the pattern {pattern:?} cannot be used ({error})"))
}

/// Splits the digits off the front of a text.
fn digits(text: &str) -> (&str, &str) {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    text.split_at(text.len() - rest.len())
}

/// A replacement of Java's as one of the engine here, for a pattern of so many groups. A backslash
/// takes the next character as it is. After `$`, digits count as long as there is such a group.
fn replacement(to: &str, groups: usize) -> Result<String, String> {
    let wrong = |why: &str| format!("{why} in the replacement {to:?}");
    let mut out = String::new();
    let mut rest = to.chars();
    while let Some(c) = rest.next() {
        let literal = match c {
            '\\' => rest
                .next()
                .ok_or_else(|| wrong("nothing after the last \\"))?,
            '$' => {
                let (all, _) = digits(rest.as_str());
                let fits = |length: &usize| {
                    let number = all.get(..*length).and_then(|text| text.parse().ok());
                    number.is_some_and(|number: usize| number <= groups)
                };
                let length = (1..=all.len()).take_while(fits).last();
                let length = length.ok_or_else(|| {
                    wrong(&format!(
                        "no number of a group after $ (there are {groups})"
                    ))
                })?;
                let (number, after) = rest.as_str().split_at(length);
                out.push_str(&format!("${{{number}}}"));
                rest = after.chars();
                continue;
            }
            c => c,
        };
        if literal == '$' {
            out.push('$');
        }
        out.push(literal);
    }
    Ok(out)
}

/// Reads a format for principals of `parts` parts.
fn pieces(format: &str, parts: usize) -> Result<Vec<Piece>, String> {
    let mut texts = format.split('$');
    let mut out = vec![Piece::Text(texts.next().unwrap_or_default().to_owned())];
    for text in texts {
        let (number, after) = digits(text);
        let number = number.parse().ok().filter(|number| *number <= parts);
        let number = number.ok_or_else(|| {
            format!("$ is followed by no number from 0 to {parts} in the format {format:?}")
        })?;
        out.extend([Piece::Value(number), Piece::Text(after.to_owned())]);
    }
    Ok(out)
}

/// The format with the values for `$0` to `$2`.
fn filled_in(format: &[Piece], values: [Option<&str>; 3]) -> Option<String> {
    let of = |piece: &Piece| match piece {
        Piece::Text(text) => Some(text.clone()),
        Piece::Value(number) => values.get(*number).copied().flatten().map(str::to_owned),
    };
    format.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(text: &str) -> NameRules {
        NameRules::parse(text, "hadoop", "HOME").expect("rules")
    }

    #[test]
    fn the_default_is_the_first_part_in_the_default_realm() {
        for text in ["DEFAULT", ""] {
            let rules = rules(text);
            assert_eq!(rules.short_name("ann@HOME").unwrap(), "ann");
            assert_eq!(rules.short_name("dn/host@HOME").unwrap(), "dn");
            assert_eq!(rules.short_name("ann").unwrap(), "ann");
            let other = rules.short_name("ann@AWAY").unwrap_err();
            assert_eq!(other, "No rules applied to ann@AWAY");
            assert!(rules.short_name("a@b@c").is_err() && rules.short_name("a/b/c@R").is_err());
        }
    }

    #[test]
    fn rules_as_operators_write_them() {
        let rules = rules(
            "RULE:[2:$1@$0](nn@.*HOME)s/.*/hdfs/\n\
             RULE:[2:$1/$2@$0](dn/.*@HOME)s/.*/hdfs/\n\
             RULE:[1:$1@$0](.*@AWAY)s/@.*///L\n\
             RULE:[2:$1;$2](^.*;admin$)s/;admin$//\n\
             RULE:[1:$1@$0](o-.*@ODD)s/o-(.)(.*)@ODD/$2$1/\n\
             RULE:[1:$1](c-.)s/c-(.)/$12\\$\\x/\n\
             RULE:[1:$1](a-b-c)s/-/_/g\n\
             DEFAULT",
        );
        for (principal, short) in [
            ("nn/h@HOME", "hdfs"),
            ("dn/h.example@HOME", "hdfs"),
            ("Ann@AWAY", "ann"),
            ("root/admin@HOME", "root"),
            ("o-xyz@ODD", "yzx"),
            ("a-b-c@AWAY2", "a_b_c"),
            ("c-d@AWAY2", "d2$x"),
            ("joe@HOME", "joe"),
            ("other/h@HOME", "other"),
        ] {
            assert_eq!(
                rules.short_name(principal).as_deref(),
                Ok(short),
                "{principal}"
            );
        }
        assert!(rules.short_name("joe@NOWHERE").is_err());
    }

    #[test]
    fn a_name_that_is_not_simple_is_refused() {
        let text = "RULE:[1:$1@$0]";
        let refused = rules(text).short_name("ann@HOME").unwrap_err();
        assert_eq!(
            refused,
            "Non-simple name ann@HOME after auth_to_local rule RULE:[1:$1@$0]"
        );
        let mit = NameRules::parse(text, "mit", "HOME").expect("rules");
        assert_eq!(mit.short_name("ann@HOME").unwrap(), "ann@HOME");
        assert_eq!(mit.short_name("dn/h@HOME").unwrap(), "dn/h@HOME");
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for text in [
            "RULE:[x:$1]",
            "RULE:[1:$1",
            "NONE",
            "RULE:[1:$1](a",
            "RULE:[1:$1]s/a/b",
            "RULE:[1:$1;$2](^.*;admin$)s/;admin$//",
            "RULE:[1:$1$]",
            "RULE:[1:$1]s/a/$1/",
            "RULE:[1:$1]s/(a)/$2/",
            "RULE:[1:$1]s/(a)/${1}/",
            "RULE:[1:$1]s/a/b\\/",
            "RULE:[1:$1]s/(?<=a)b/c/",
        ] {
            let wrong = NameRules::parse(text, "hadoop", "R").unwrap_err();
            assert!(wrong.contains("in the rule that begins at"), "{wrong}");
        }
        assert!(NameRules::parse("RULE:[1:$1]([)", "hadoop", "R").is_err());
        assert!(NameRules::parse("", "other", "R").is_err());
    }

    proptest! {
        #[test]
        fn any_text_and_any_name_are_taken(text in "[RULE:\\[\\]$0-9()s/gL* DFAT\n]{0,60}",
            name in "[a-c/@]{0,12}") {
            if let Ok(rules) = NameRules::parse(&text, "hadoop", "a")
                && let Ok(short) = rules.short_name(&name)
            {
                prop_assert!(!short.contains(['/', '@']));
            }
        }

        #[test]
        fn the_default_never_changes_a_service(service in "[a-z]{1,8}", host in "[a-z.]{1,8}") {
            let principal = format!("{service}/{host}@HOME");
            prop_assert_eq!(rules("DEFAULT").short_name(&principal), Ok(service));
        }
    }
}
