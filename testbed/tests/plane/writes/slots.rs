//! Writers of the same ledger, against the real API server.

use std::borrow::Cow;

use anyhow::{Context as _, Result, bail, ensure};
use brupop_api::fleet::{Slot, VersionRecord};
use brupop_api::{BottlerocketFleet, Field, Object, Value, Write};
use brupop_apply::Fields as _;
use http::Method;
use kube::Client;
use serde_json::json;

use super::{Kind, Server};

/// Rounds of two who want the same slot.
const ROUNDS: u64 = 25;

fn slot(shadow: &str, attempt: u64) -> (Field<'_>, Value<'_>) {
    (
        Field::Slot(shadow),
        Value::Slot(Slot {
            uid: "u".to_owned(),
            attempt,
            ..Slot::default()
        }),
    )
}

/// Two reconcilers see one free slot and both take it: one of them has it.
pub async fn of_two_who_take_one_has_it(client: &Client) -> Result<()> {
    let server = Server::new(client.clone(), Kind::Fleet);
    // The first leader finds no status, and so neither a map of slots nor one of versions.
    let mut fleet = server.make(&json!({"spec": {}})).await?;
    let first = Write {
        object: Object::Ledger,
        tests: vec![
            (Field::Term, Value::Absent),
            (Field::Slots, Value::Slots(Cow::default())),
        ],
        sets: vec![
            slot("brs-n", 0),
            (
                Field::Versions,
                Value::Versions(Cow::Owned(vec![VersionRecord {
                    version: "1.20.0".to_owned(),
                    variant: "aws".to_owned(),
                    ..VersionRecord::default()
                }])),
            ),
            (Field::Term, Value::Number(1)),
        ],
    };
    let ledger = server
        .write(&first, &fleet.json, &fleet)
        .await?
        .context("the first ledger")?;
    let read = std::mem::replace(&mut fleet.json, ledger);
    ensure!(
        server.write(&first, &read, &fleet).await?.is_none(),
        "twice"
    );
    let mut winners = [0; 2];
    for round in 1..=ROUNDS {
        let read: BottlerocketFleet = serde_json::from_value(fleet.json.clone())?;
        let slots = read.status.as_ref().context("status")?.slots.clone();
        let names = [format!("brs-a{round}"), format!("brs-b{round}")];
        let take = |name| {
            // Room for one: what the last round took is given back in the same patch.
            let freed = slots.keys().map(|name| (Field::Slot(name), Value::Absent));
            let tests = vec![
                (Field::Term, Value::Number(1)),
                (Field::Slots, Value::Slots(Cow::Borrowed(&slots))),
            ];
            Write {
                object: Object::Ledger,
                tests,
                sets: freed.chain([slot(name, round)]).collect(),
            }
        };
        let patches = names
            .each_ref()
            .map(|name| json!(take(name).patch(&fleet.json)));
        let path = format!("{}/status", fleet.path);
        let (one, other) = tokio::join!(
            server.request(Method::PATCH, &path, &patches[0]),
            server.request(Method::PATCH, &path, &patches[1]),
        );
        let (winner, stored) = match (one, other) {
            (Ok(stored), Err(kube::Error::Api(status))) if status.code == 422 => (0, stored),
            (Err(kube::Error::Api(status)), Ok(stored)) if status.code == 422 => (1, stored),
            both => bail!("round {round}: {both:?}"),
        };
        let taken = stored["status"]["slots"].as_object().context("slots")?;
        ensure!(
            taken.keys().eq([&names[winner]]),
            "round {round}: {winner} won, and {taken:?} are taken"
        );
        winners[winner] += 1;
        fleet.json = stored;
    }
    println!("slots: {winners:?}");

    // A new term fences the old leader, even where the slots are the same.
    let read: BottlerocketFleet = serde_json::from_value(fleet.json.clone())?;
    let as_read = |field| Ok::<_, anyhow::Error>((field, read.get(field).context("a field")?));
    let tests = vec![as_read(Field::Term)?, as_read(Field::Slots)?];
    let sets = vec![(Field::LastFinished, Value::text("2026-01-01T00:00:00Z"))];
    let late = Write {
        object: Object::Ledger,
        tests,
        sets,
    };
    let mut next = fleet.json.clone();
    next["status"]["term"] = json!(2);
    let now = server.put(&fleet, &next).await?;
    ensure!(
        server.write(&late, &fleet.json, &now).await?.is_none(),
        "a deposed leader wrote the ledger"
    );
    Ok(())
}
