//! Which answer counts, and whether it may replace what was known.

use crate::name::{RackPath, SafeName};
use crate::panel::SourceSaid;
use crate::place::{KnownPlace, Whereabouts};

/// What to do about an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceVerdict {
    /// It is new: write it.
    Write,
    /// It is what the files say.
    Same,
    /// What is known is worth more. Says why.
    Keep(String),
}

/// The answer that says most; of equal ones the first in the order of the sources.
pub fn choose<'a>(
    said: &'a [SourceSaid],
    prefer: Option<&str>,
) -> Option<(&'static str, &'a Whereabouts)> {
    let answers = said.iter();
    let answers = answers.filter_map(|said| Some((said.source, said.answer.as_ref().ok()?)));
    let mut best: Option<(&'static str, &Whereabouts)> = None;
    for (source, place) in answers {
        if prefer == Some(source) {
            return Some((source, place));
        }
        if best.is_none_or(|(_, before)| before.worth() < place.worth()) {
            best = Some((source, place));
        }
    }
    best
}

/// Whether an answer may replace what is known.
///
/// `free`: the operator named the source, so another one than before is what they want.
pub fn judge(
    known: &KnownPlace,
    source: &str,
    rack: &RackPath,
    host: Option<&SafeName>,
    free: bool,
) -> PlaceVerdict {
    let Some(known_rack) = &known.rack else {
        return PlaceVerdict::Write;
    };
    if known_rack == rack && known.host.as_ref() == host {
        return PlaceVerdict::Same;
    }
    if let Some(before) = known.source.as_deref().filter(|before| *before != source)
        && !free
    {
        return PlaceVerdict::Keep(format!(
            "{before} found it and gives no place now, {source} says another"
        ));
    }
    if known_rack.is_exact() && !rack.is_exact() {
        let zone = rack.as_str();
        return PlaceVerdict::Keep(format!("{source} says less now: {zone}"));
    }
    if let (Some(before), None) = (&known.host, host) {
        return PlaceVerdict::Keep(format!(
            "{source} does not say the host now, it was {before}"
        ));
    }
    PlaceVerdict::Write
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(source: &str, rack: &str, host: Option<&str>) -> KnownPlace {
        KnownPlace {
            source: Some(source.to_owned()),
            rack: Some(rack.parse().expect("a rack")),
            host: host.map(|host| host.parse().expect("a name")),
        }
    }

    fn verdict(known: &KnownPlace, source: &str, rack: &str, host: Option<&str>) -> PlaceVerdict {
        let host = host.map(|host| host.parse().expect("a name"));
        judge(
            known,
            source,
            &rack.parse().expect("a rack"),
            host.as_ref(),
            false,
        )
    }

    #[test]
    fn what_says_less_replaces_nothing() {
        let before = known("ec2", "/z/r1", Some("h1"));
        assert_eq!(
            verdict(&before, "ec2", "/z/r1", Some("h1")),
            PlaceVerdict::Same
        );
        assert_eq!(
            verdict(&before, "ec2", "/z/r2", Some("h2")),
            PlaceVerdict::Write
        );
        let less = [
            ("ec2", "/z/unplaced", Some("h1")),
            ("ec2", "/z/r1", None),
            ("kubernetes", "/z/n1", Some("n1")),
        ];
        for (source, rack, host) in less {
            let verdict = verdict(&before, source, rack, host);
            assert!(matches!(verdict, PlaceVerdict::Keep(_)), "{source} {rack}");
        }
        let none = KnownPlace::default();
        assert_eq!(
            verdict(&none, "ec2", "/z/unplaced", None),
            PlaceVerdict::Write
        );
    }

    #[test]
    fn the_answer_that_says_most_counts_unless_one_found_it_before() {
        let place = |rack: &str, host: Option<&str>| Whereabouts {
            host: host.map(|host| host.parse().expect("a name")),
            rack: rack.parse().expect("a rack"),
            how: Vec::new(),
        };
        let said = [
            ("ec2", Ok(place("/z/unplaced", None))),
            ("azure", Err("not there".into())),
            ("kubernetes", Ok(place("/z/n1", Some("n1")))),
            ("hypervisor", Ok(place("/default/h", Some("h")))),
        ]
        .map(|(source, answer)| SourceSaid { source, answer });
        let name = |prefer| choose(&said, prefer).map(|(source, _)| source);
        assert_eq!(name(None), Some("kubernetes"));
        assert_eq!(name(Some("ec2")), Some("ec2"));
        assert_eq!(name(Some("azure")), Some("kubernetes"));
    }
}
