//! The rows: which properties of the compute profile each one sets. The profile is what the program
//! under test prints, so that what is measured is what operators are told.

use std::process::Command;

use hayloft_testkit::error::{Result, TestkitError, expect};
use hayloft_testkit::hadoop::hayloft_binary;
use hayloft_testkit::hadoop_conf::Conf;
use serde::Deserialize;

/// The row that sets nothing.
pub(super) const DEFAULTS: &str = "defaults";
/// The row that sets everything.
pub(super) const ALL: &str = "all";
/// The job's own file; the daemons of YARN read the others.
const OF_JOBS: &str = "mapred-site.xml";
const OF_DAEMONS: [&str; 2] = ["yarn-site.xml", "capacity-scheduler.xml"];
/// Most of a split that blocks are combined to.
const SPLIT_MOST: &str = "mapreduce.input.fileinputformat.split.maxsize";
/// How a job asks for splits that combine blocks, which the profile says beside its properties.
const COMBINES: (&str, &str) = (
    "mapreduce.job.inputformat.class",
    "org.apache.hadoop.mapreduce.lib.input.CombineTextInputFormat",
);

/// A row of the table.
#[derive(Debug)]
pub(super) struct SettingRow {
    pub name: &'static str,
    /// What the names of its properties hold.
    of: &'static str,
}

/// All rows. Each property of the profile is in one beside `all`.
pub(super) const ROWS: [SettingRow; 6] = [
    SettingRow {
        name: DEFAULTS,
        of: "",
    },
    SettingRow {
        name: "heartbeats",
        of: "heartbeat",
    },
    SettingRow {
        name: "locality",
        of: "locality-delay",
    },
    SettingRow {
        name: "one JVM for a small job",
        of: "ubertask",
    },
    SettingRow {
        name: "large tasks",
        of: "fileinputformat.split",
    },
    SettingRow { name: ALL, of: "" },
];

/// What `hayloft profile compute --json` prints.
#[derive(Debug, Deserialize)]
pub(super) struct ProfileOutput {
    properties: Vec<PrintedProperty>,
    /// The version whose names it has.
    pub names_of: String,
}

#[derive(Debug, Deserialize)]
struct PrintedProperty {
    file: String,
    name: String,
    value: String,
    default: Option<String>,
}

impl ProfileOutput {
    /// The profile for MapReduce of the program under test.
    ///
    /// # Errors
    /// When there is none, it prints something else, or a property that no row sets.
    pub fn ask() -> Result<Self> {
        let binary = hayloft_binary()?;
        let ran = Command::new(&binary)
            .args(["profile", "compute", "--for", "mapreduce"])
            .args(["--layout", "split", "--json"])
            .output()
            .map_err(TestkitError::file("running", &binary))?;
        let said = String::from_utf8_lossy(&ran.stderr);
        expect(ran.status.success(), || {
            format!("{} profile compute: {said}", binary.display())
        })?;
        Self::parse(&ran.stdout)
    }

    fn parse(text: &[u8]) -> Result<Self> {
        let wrong = |error| TestkitError::Talk(format!("hayloft profile compute: {error}"));
        let profile: Self = serde_json::from_slice(text).map_err(wrong)?;
        for property in &profile.properties {
            let PrintedProperty { file, name, .. } = property;
            let rows = ROWS.iter().filter(|row| !row.of.is_empty());
            let theirs = rows.filter(|row| row.sets(property)).count();
            let known = file == OF_JOBS || OF_DAEMONS.contains(&file.as_str());
            expect(theirs == 1 && known, || {
                format!("{theirs} rows set {name} of {file}: one must, and know its file")
            })?;
        }
        let empty = ROWS.iter().find(|row| {
            let any = profile.properties.iter().any(|property| row.sets(property));
            !any && row.name != DEFAULTS
        });
        expect(empty.is_none(), || format!("nothing to set: {empty:?}"))?;
        Ok(profile)
    }
}

/// What a row sets: for YARN's daemons, and for jobs.
#[derive(Debug, Default)]
pub(super) struct RowConf {
    pub daemons: Conf,
    pub jobs: Conf,
}

impl SettingRow {
    fn sets(&self, property: &PrintedProperty) -> bool {
        match self.name {
            DEFAULTS => false,
            ALL => true,
            _ => property.name.contains(self.of),
        }
    }

    fn properties<'a>(
        &'a self,
        profile: &'a ProfileOutput,
    ) -> impl Iterator<Item = &'a PrintedProperty> {
        let all = profile.properties.iter();
        all.filter(move |property| self.sets(property))
    }

    /// Its properties, for a job with so many bytes of input for each map that runs at a time: as
    /// the profile advises, combined splits are no larger than that.
    ///
    /// # Errors
    /// When the most of a split is no number.
    pub fn conf(&self, profile: &ProfileOutput, bytes_a_map: u64) -> Result<RowConf> {
        let mut conf = RowConf::default();
        for PrintedProperty {
            file, name, value, ..
        } in self.properties(profile)
        {
            let of_file = match file.as_str() {
                OF_JOBS => &mut conf.jobs,
                _ => &mut conf.daemons,
            };
            of_file.set(name, value);
            if name == SPLIT_MOST {
                let most = value.parse::<u64>();
                let most = most.map_err(|_| TestkitError::Talk(format!("{name} is {value}")))?;
                of_file.set(name, most.min(bytes_a_map));
                of_file.set(COMBINES.0, COMBINES.1);
            }
        }
        Ok(conf)
    }

    /// What it sets for such a job in words, with the defaults that the profile knows.
    ///
    /// # Errors
    /// As [`SettingRow::conf`].
    pub fn said(&self, profile: &ProfileOutput, bytes_a_map: u64) -> Result<String> {
        let conf = self.conf(profile, bytes_a_map)?;
        let set = conf.daemons.iter().chain(conf.jobs.iter());
        let said = set.map(|(name, value)| {
            let printed = profile.properties.iter().find(|one| one.name == name);
            let default = printed.and_then(|one| one.default.as_deref());
            format!("{name}={value} (default {})", default.unwrap_or("none"))
        });
        let said: Vec<String> = said.collect();
        Ok(match said.is_empty() {
            true => "nothing".into(),
            false => said.join(" "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the program prints it, with these more properties.
    fn printed(more: &str) -> String {
        let property = |file: &str, name: &str, value: &str, default: &str| {
            format!(r#"{{"file":"{file}","name":"{name}","value":"{value}","default":{default}}}"#)
        };
        let all = [
            property(
                "yarn-site.xml",
                "a.heartbeat-interval-ms",
                "300",
                r#""1000""#,
            ),
            property(
                "mapred-site.xml",
                "b.heartbeat.interval-ms",
                "300",
                r#""1000""#,
            ),
            property(
                "capacity-scheduler.xml",
                "node-locality-delay",
                "0",
                r#""40""#,
            ),
            property("mapred-site.xml", SPLIT_MOST, "5000", "null"),
            property(
                "mapred-site.xml",
                "mapreduce.job.ubertask.enable",
                "true",
                r#""false""#,
            ),
        ];
        format!(
            r#"{{"for":"mapreduce","names_of":"Hadoop 3.5.0","properties":[{}{more}]}}"#,
            all.join(",")
        )
    }

    fn row(name: &str) -> &'static SettingRow {
        ROWS.iter().find(|row| row.name == name).expect("a row")
    }

    #[test]
    fn each_row_sets_its_properties_where_they_are_read() {
        let profile = ProfileOutput::parse(printed("").as_bytes()).expect("right");
        let sizes = |name: &str| {
            let conf = row(name).conf(&profile, 4000).expect("numbers");
            (conf.daemons.iter().count(), conf.jobs.iter().count())
        };
        assert_eq!(sizes(DEFAULTS), (0, 0));
        assert_eq!(sizes("heartbeats"), (1, 1));
        assert_eq!(sizes("locality"), (1, 0));
        // The format is beside the most of a split.
        assert_eq!(sizes("large tasks"), (0, 2));
        assert_eq!(sizes(ALL), (2, 4));
        let said = |name: &str| row(name).said(&profile, 4000).expect("numbers");
        assert_eq!(said("locality"), "node-locality-delay=0 (default 40)");
        assert_eq!(said(DEFAULTS), "nothing");
        let most = format!("{SPLIT_MOST}=4000 (default none)");
        assert!(
            said("large tasks").contains(&most),
            "what counts, not what is printed"
        );
    }

    #[test]
    fn a_split_is_no_larger_than_a_map_s_share_of_the_input() {
        let profile = ProfileOutput::parse(printed("").as_bytes()).expect("right");
        for (share, wanted) in [(4000, "4000"), (6000, "5000")] {
            let conf = row(ALL).conf(&profile, share).expect("numbers");
            assert_eq!(conf.jobs.get(SPLIT_MOST), Some(wanted));
            assert_eq!(conf.jobs.get(COMBINES.0), Some(COMBINES.1));
        }
    }

    #[test]
    fn what_no_row_sets_is_refused() {
        for (file, name) in [("mapred-site.xml", "new.key"), ("new.xml", "c.heartbeat")] {
            let more = format!(r#",{{"file":"{file}","name":"{name}","value":"1"}}"#);
            let error = ProfileOutput::parse(printed(&more).as_bytes()).expect_err(name);
            assert!(error.to_string().contains(name), "{error}");
        }
        let without = printed("").replace("ubertask", "heartbeat");
        let error = ProfileOutput::parse(without.as_bytes()).expect_err("a row is empty");
        assert!(error.to_string().contains("nothing to set"), "{error}");
    }
}
