//! The profile in the form that each tool's users paste into its files.

use std::fmt::Write as _;

use super::compute_properties::{ComputeProperty, ComputeTool};

/// All of it, file by file.
pub fn text(tool: ComputeTool, properties: &[ComputeProperty]) -> String {
    let comment = |said: &str| match tool {
        ComputeTool::Spark | ComputeTool::Flink => format!("# {said}\n"),
        ComputeTool::MapReduce | ComputeTool::Tez => format!("<!-- {said} -->\n"),
    };
    let mut text = comment(&format!(
        "Jobs on other hosts than the storage. Names as in {}.",
        tool.names_of()
    ));
    let mut file = "";
    for property in properties {
        if property.file != file {
            file = property.file;
            text.push('\n');
            text.push_str(&comment(&format!("For {file}:")));
        }
        text.push_str(&one(tool, property));
    }
    text.push('\n');
    text.extend(tool.nothing_to_set().iter().map(|said| comment(said)));
    text
}

fn one(tool: ComputeTool, property: &ComputeProperty) -> String {
    let (name, value) = (property.name, property.value);
    let why = why(property);
    match tool {
        ComputeTool::Spark => format!("# {why}\n{name}={value}\n"),
        ComputeTool::Flink => format!("# {why}\n{name}: {value}\n"),
        ComputeTool::MapReduce | ComputeTool::Tez => {
            let mut text = String::from("<property>\n");
            // No value or reason of the table holds a character that XML would need escaped.
            for (tag, held) in [
                ("name", name),
                ("value", value),
                ("description", why.as_str()),
            ] {
                let _ = writeln!(text, "  <{tag}>{held}</{tag}>");
            }
            text + "</property>\n"
        }
    }
}

/// The reason, and what counts without the property.
fn why(property: &ComputeProperty) -> String {
    match property.default {
        None => property.reason.to_owned(),
        Some(default) => format!("{} Default: {default}.", property.reason),
    }
}
