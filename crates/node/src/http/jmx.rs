//! `/jmx`: beans by name, by pattern, or one attribute.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

/// A bean: its name, its class, its attributes.
#[derive(Clone, Debug)]
pub struct Bean {
    /// `Hadoop:service=DataNode,name=...`.
    pub name: String,
    /// `modelerType`.
    pub class: String,
    /// By name.
    pub attributes: Map<String, Value>,
}

impl Bean {
    fn to_json(&self, only: Option<&str>) -> Value {
        let mut all = Map::new();
        all.insert("name".into(), json!(self.name));
        all.insert("modelerType".into(), json!(self.class));
        let wanted = |name: &str| only.is_none_or(|only| only == name);
        let some = self.attributes.iter().filter(|(name, _)| wanted(name));
        all.extend(some.map(|(name, value)| (name.clone(), value.clone())));
        Value::Object(all)
    }
}

/// The answer to `?get=bean::attribute`, to `?qry=pattern`, or all.
pub fn answer(beans: Vec<Bean>, get: Option<&str>, pattern: Option<&str>) -> (StatusCode, String) {
    let (status, body) = match (get, pattern) {
        (Some(get), _) => one(&beans, get),
        (None, Some(pattern)) => match BeanPattern::parse(pattern) {
            Some(pattern) => (
                StatusCode::OK,
                listed(&beans, None, |b| pattern.fits(&b.name)),
            ),
            None => (StatusCode::BAD_REQUEST, failed("qry is no name of a bean")),
        },
        (None, None) => (StatusCode::OK, listed(&beans, None, |_| true)),
    };
    let text = serde_json::to_string_pretty(&body).unwrap_or_default();
    (status, text)
}

fn listed(beans: &[Bean], only: Option<&str>, wanted: impl Fn(&Bean) -> bool) -> Value {
    let some = beans.iter().filter(|bean| wanted(bean));
    let some: Vec<Value> = some.map(|bean| bean.to_json(only)).collect();
    json!({ "beans": some })
}

fn failed(message: &str) -> Value {
    json!({"result": "ERROR", "message": message})
}

fn one(beans: &[Bean], get: &str) -> (StatusCode, Value) {
    let parts: Vec<&str> = get.split("::").collect();
    let [name, attribute] = parts[..] else {
        // As Apache's: an error that is no error of HTTP.
        return (StatusCode::OK, failed("get is not bean::attribute"));
    };
    let Some(bean) = beans.iter().find(|bean| bean.name == name) else {
        return (StatusCode::NOT_FOUND, failed("there is no such bean"));
    };
    if !bean.attributes.contains_key(attribute) {
        return (
            StatusCode::NOT_FOUND,
            failed("the bean has no such attribute"),
        );
    }
    let only = listed(beans, Some(attribute), |bean| bean.name == name);
    (StatusCode::OK, only)
}

/// A name of beans with `*` and `?`, as JMX has it.
struct BeanPattern {
    domain: String,
    properties: Vec<(String, String)>,
    /// Other properties may be there too.
    more: bool,
}

impl BeanPattern {
    fn parse(text: &str) -> Option<Self> {
        let (domain, rest) = text.split_once(':')?;
        let (mut properties, mut more) = (Vec::new(), false);
        for part in rest.split(',') {
            if part == "*" {
                more = true;
                continue;
            }
            let (key, value) = part.split_once('=')?;
            properties.push((key.to_owned(), value.to_owned()));
        }
        Some(Self {
            domain: domain.to_owned(),
            properties,
            more,
        })
    }

    fn fits(&self, name: &str) -> bool {
        let Some((domain, rest)) = name.split_once(':') else {
            return false;
        };
        let own: Vec<(&str, &str)> = rest.split(',').filter_map(|p| p.split_once('=')).collect();
        let has = |(key, pattern): &(String, String)| {
            own.iter()
                .any(|(k, v)| k == key && glob(pattern.as_bytes(), v.as_bytes()))
        };
        glob(self.domain.as_bytes(), domain.as_bytes())
            && self.properties.iter().all(has)
            && (self.more || self.properties.len() == own.len())
    }
}

/// Whether `text` fits a pattern of `*` and `?`; each star is tried again at most once a byte.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                p = at + 1;
                t = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beans() -> Vec<Bean> {
        let bean = |name: &str| Bean {
            name: format!("Hadoop:service=DataNode,name={name}"),
            class: "c".into(),
            attributes: Map::from_iter([("A".into(), json!(1)), ("B".into(), json!("x"))]),
        };
        vec![
            bean("FSDatasetState"),
            bean("FSDatasetState-1"),
            bean("JvmMetrics"),
        ]
    }

    fn names(pattern: &str) -> Vec<String> {
        let (status, text) = answer(beans(), None, Some(pattern));
        assert_eq!(status, StatusCode::OK, "{pattern}");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let beans = value["beans"].as_array().cloned().unwrap_or_default();
        let name = |bean: &Value| bean["name"].as_str().unwrap_or_default().to_owned();
        beans.iter().map(name).collect()
    }

    #[test]
    fn patterns_are_those_of_jmx() {
        assert_eq!(
            names("Hadoop:service=DataNode,name=FSDatasetState*").len(),
            2
        );
        assert_eq!(names("Hadoop:name=JvmMetrics,service=DataNode").len(), 1);
        assert_eq!(names("Hadoop:*").len(), 3);
        assert_eq!(names("*:service=DataNode,name=*-?").len(), 1);
        assert_eq!(
            names("Hadoop:service=DataNode").len(),
            0,
            "a property is missing"
        );
        assert_eq!(names("Hadoop:service=NameNode,*").len(), 0);
        let (status, _) = answer(beans(), None, Some("nonsense"));
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn one_attribute_is_given_alone() {
        let get = |what| answer(beans(), Some(what), None);
        let (status, text) = get("Hadoop:service=DataNode,name=JvmMetrics::B");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(status, StatusCode::OK);
        assert_eq!(value["beans"][0]["B"], "x");
        assert!(value["beans"][0]["A"].is_null());
        let missing = get("Hadoop:service=DataNode,name=JvmMetrics::C").0;
        assert_eq!(missing, StatusCode::NOT_FOUND);
        assert_eq!(get("Hadoop:service=X::C").0, StatusCode::NOT_FOUND);
        let (status, text) = get("nope");
        assert!(status == StatusCode::OK && text.contains("ERROR"), "{text}");
    }

    #[test]
    fn a_pattern_of_many_stars_ends_soon() {
        let stars = "*a".repeat(2000);
        let text = "a".repeat(4000);
        assert!(!glob(format!("{stars}b").as_bytes(), text.as_bytes()));
        assert!(glob(b"**", b"") && glob(b"", b"") && !glob(b"?", b""));
    }
}
