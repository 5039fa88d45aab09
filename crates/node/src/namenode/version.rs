//! Comparing Hadoop version numbers such as "3.5.0" and "2.1.0-beta".

use std::cmp::Ordering;

/// Orders two versions: number by number, a missing number counting as zero. With equal numbers one
/// with a qualifier ("-beta", "-SNAPSHOT") comes before the one without. Two qualifiers are ordered
/// by their text.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let (a_numbers, a_qualifier) = split(a);
    let (b_numbers, b_qualifier) = split(b);
    let len = a_numbers.len().max(b_numbers.len());
    let at = |numbers: &[u64], index: usize| numbers.get(index).copied().unwrap_or(0);
    (0..len)
        .map(|index| at(&a_numbers, index).cmp(&at(&b_numbers, index)))
        .find(|order| order.is_ne())
        .unwrap_or_else(|| match (a_qualifier.is_empty(), b_qualifier.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => a_qualifier.cmp(b_qualifier),
        })
}

fn split(version: &str) -> (Vec<u64>, &str) {
    let end = version
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(version.len());
    let numbers = version[..end]
        .split('.')
        .filter_map(|part| part.parse().ok())
        .collect();
    (numbers, &version[end..])
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn orders_versions() {
        let ordered = [
            "2.1.0-alpha",
            "2.1.0-beta",
            "2.1.0",
            "2.10.0",
            "3.5.0-SNAPSHOT",
            "3.5.0",
            "3.5.0.1",
        ];
        for pair in ordered.windows(2) {
            assert!(compare(pair[0], pair[1]).is_lt(), "{pair:?}");
            assert!(compare(pair[1], pair[0]).is_gt(), "{pair:?}");
        }
        assert!(compare("3.5", "3.5.0").is_eq());
        assert!(compare("", "2.1.0").is_lt());
    }
}
