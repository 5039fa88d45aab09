//! The contract of all engines over a plug-in with a device.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hayloft_contract::{CONTRACT_CASES, EngineRig, try_out};
use hayloft_io::{DiskConfig, EngineConfig, engine_for};

/// What the engine called `name` does otherwise, each case in a new directory below `parent`.
pub fn breaches(name: &str, parent: &Path) -> Vec<String> {
    let try_case = |case| {
        let (name, parent) = (name.to_owned(), parent.to_owned());
        let make = move || {
            EngineRig::new(&parent, DiskConfig::default(), |dir, disk| {
                let mut config = EngineConfig::new(Arc::clone(disk));
                config.wipe_device = true;
                engine_for(&name, dir, &config).map(|choice| choice.engine)
            })
        };
        let outcome = try_out(case, make, Duration::from_secs(60));
        outcome.wrong.map(|why| format!("{}: {why}", outcome.name))
    };
    let cases = CONTRACT_CASES.iter().copied();
    cases.filter_map(try_case).collect()
}
