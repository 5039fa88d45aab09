//! Where testbeds are kept.

use std::path::PathBuf;

use clap::Args;

/// Where testbeds are kept.
#[derive(Clone, Debug, Args)]
pub struct PlaceArgs {
    /// Directory of configuration, logs and disks of testbeds
    /// [default: $HAYLOFT_STATE/lab or .hayloft/lab].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl PlaceArgs {
    /// The directory of all testbeds.
    pub fn all(&self) -> PathBuf {
        let usual = || {
            let state = std::env::var_os("HAYLOFT_STATE").filter(|state| !state.is_empty());
            state
                .map_or_else(|| PathBuf::from(".hayloft"), PathBuf::from)
                .join("lab")
        };
        self.state.clone().unwrap_or_else(usual)
    }

    /// The directory of one testbed.
    pub fn of(&self, name: &str) -> PathBuf {
        self.all().join(name)
    }
}
