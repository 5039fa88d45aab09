//! Local paths that are written as `file:` URIs.

/// The path that a URI or a plain path names.
pub(super) fn local_path(location: &str) -> Result<String, String> {
    match location.split_once(':') {
        Some(("file", rest)) => {
            // file:///a, file:/a and file://host/a all name /a.
            let path = match rest.strip_prefix("//") {
                Some(authority) => authority.find('/').map_or("", |at| &authority[at..]),
                None => rest,
            };
            Ok(percent_decode(path).ok_or("a URI whose %-escapes are UTF-8")?)
        }
        Some((scheme, _)) if !scheme.contains('/') => {
            Err(format!("a local directory ({scheme}: is not)"))
        }
        _ => Ok(location.to_owned()),
    }
}

/// Undoes `%20` and the like; `None` if an escape is broken or the result is not UTF-8.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}
