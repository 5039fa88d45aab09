//! Whom we say we are on connections with SIMPLE authentication.

/// The user of RPC connections: `HADOOP_USER_NAME` when set and not empty, else the owner of this
/// process by the user database, else the numeric user id.
#[must_use]
pub fn current_user() -> String {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let uid = rustix::process::getuid().as_raw();
    set("HADOOP_USER_NAME")
        .or_else(|| {
            user_of(
                uid,
                &std::fs::read_to_string("/etc/passwd").unwrap_or_default(),
            )
        })
        .or_else(|| set("USER"))
        .or_else(|| set("LOGNAME"))
        .unwrap_or_else(|| uid.to_string())
}

/// The name of `uid` in the text of a `passwd` file.
fn user_of(uid: u32, passwd: &str) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id = fields.nth(1)?;
        (id.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::user_of;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\nbroken\n\nhdfs:x:971:971::/:/bin/false\n";

    #[test]
    fn finds_the_user_by_id() {
        assert_eq!(user_of(971, PASSWD).as_deref(), Some("hdfs"));
        assert_eq!(user_of(0, PASSWD).as_deref(), Some("root"));
        assert_eq!(user_of(5, PASSWD), None);
    }
}
