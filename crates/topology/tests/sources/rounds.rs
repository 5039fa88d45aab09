//! Rounds of all sources: in time whatever a server does, and without a proxy.

use std::time::{Duration, Instant};

use hayloft_topology::{SourcePanel, SourceSettings, choose, sources_by_name};

use crate::fake::{Answer, FakeServer, ask, ask_all, bad_answers, settings};

/// A round of servers that are late takes one request's time: one a source would take three.
const IN_TIME: Duration = Duration::from_millis(2900);

#[test]
fn bad_answers_give_no_place_in_time() {
    for (what, answer, says) in bad_answers() {
        let fake = FakeServer::start(move |_| answer.clone());
        let begin = Instant::now();
        let said = ask_all("auto", &settings(&fake));
        assert!(begin.elapsed() < IN_TIME, "{what}: {:?}", begin.elapsed());
        assert_eq!(choose(&said, None), None, "{what}: {said:?}");
        assert_eq!(said.len(), 5);
        for said in said
            .iter()
            .filter(|said| ["ec2", "gcp", "azure"].contains(&said.source))
        {
            let problem = said.answer.clone().expect_err(what).to_string();
            assert!(problem.contains(says), "{what}: {}: {problem}", said.source);
        }
    }
}

#[test]
fn a_port_without_a_server_is_said_at_once() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = gone.local_addr().expect("bound");
    drop(gone);
    let settings = SourceSettings {
        metadata: Some(format!("http://{at}").parse().expect("an address")),
        ..SourceSettings::default()
    };
    let said = ask("azure", &settings).expect_err("no server");
    assert!(said.contains("refused"), "{said}");
}

#[test]
fn a_source_that_hangs_is_not_asked_again_and_holds_up_no_other() {
    let dir = tempfile::tempdir().expect("a directory");
    // Reading a pipe without a writer hangs, as a file on a dead mount does.
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("runs").success());
    let mut sources = sources_by_name(
        &format!("file:{}", pipe.display()),
        &SourceSettings::default(),
    )
    .expect("a source");
    let fake = FakeServer::start(|_| Answer::Says(404, "", String::new()));
    sources.extend(sources_by_name("azure", &settings(&fake)).expect("a source"));
    let mut panel = SourcePanel::new(sources);
    for round in 1..=2 {
        let begin = Instant::now();
        let said = panel.ask();
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "{:?}",
            begin.elapsed()
        );
        let hung = said[0].answer.clone().expect_err("hangs").to_string();
        assert!(hung.contains("has not answered"), "{hung}");
        let other = said[1].answer.clone().expect_err("404").to_string();
        assert!(other.contains("404"), "{other}");
        assert_eq!(fake.count(), round);
    }
}
