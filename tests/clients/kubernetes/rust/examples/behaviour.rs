//! The driver of kube-rs for docs/client-behaviour.md: it executes the commands that it reads from standard input, and
//! prints what the client does. `../../../behaviour/README.md` has both forms.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::BufRead;
use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::{self, Store, store::Writer};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_with};
use kube::{Client, Config};
use serde_json::{Value, json};

#[tokio::main]
async fn main() {
    let (send, mut commands) = tokio::sync::mpsc::channel::<Value>(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let command = serde_json::from_str(&line.unwrap()).unwrap();
            send.blocking_send(command).unwrap();
        }
    });
    let mut maps = None;
    let mut store = None;
    while let Some(command) = commands.recv().await {
        match text(&command, "op") {
            "connect" => match connect(&command).await {
                Ok(client) => {
                    maps = Some(Api::default_namespaced(client));
                    tell(&command, "returned", json!({"value": ""}));
                }
                Err(error) => failed(&command, &*error),
            },
            "informer" => {
                let (reader, writer) = reflector::store();
                store = Some(reader);
                tokio::spawn(inform(maps.clone().unwrap(), writer, command));
            }
            "store" => {
                let objects = contents(store.as_ref().unwrap());
                tell(&command, "returned", json!({"objects": objects}));
            }
            _ => {
                let maps = maps.clone().unwrap();
                tokio::spawn(async move {
                    match execute(maps, &command).await {
                        Ok(value) => tell(&command, "returned", json!({"value": value})),
                        Err(error) => failed(&command, &error),
                    }
                });
            }
        }
    }
}

fn text<'a>(command: &'a Value, field: &str) -> &'a str {
    command[field].as_str().unwrap_or_default()
}

fn tell(command: &Value, event: &str, mut fields: Value) {
    fields["id"] = command["id"].clone();
    fields["event"] = event.into();
    println!("{fields}");
}

/// Tells an error, with its sources that it does not repeat.
fn failed(command: &Value, error: &(dyn Error + 'static)) {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        if !text.contains(&error.to_string()) {
            text = format!("{text}: {error}");
        }
        source = error.source();
    }
    tell(command, "failed", json!({"text": text}));
}

async fn connect(command: &Value) -> Result<Client, Box<dyn Error>> {
    let file = Kubeconfig::read_from(text(command, "kubeconfig"))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn value_of(map: &ConfigMap) -> String {
    let data = map.data.as_ref();
    data.and_then(|data| data.get("value").cloned())
        .unwrap_or_default()
}

fn name_of(map: &ConfigMap) -> String {
    map.metadata.name.clone().unwrap_or_default()
}

/// Runs a watcher with the backoff that its documentation recommends and that controllers have, and a reflector.
async fn inform(maps: Api<ConfigMap>, writer: Writer<ConfigMap>, command: Value) {
    let watcher = watch_with(maps, watcher::Config::default()).default_backoff();
    let mut events = pin!(reflector::reflector(writer, watcher));
    let item = |kind: &str, map: &ConfigMap| {
        let fields = json!({"kind": kind, "key": name_of(map), "value": value_of(map)});
        tell(&command, "item", fields);
    };
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(map) | Event::InitApply(map)) => item("applied", &map),
            Ok(Event::Delete(map)) => item("deleted", &map),
            Ok(Event::Init) => {}
            Ok(Event::InitDone) => tell(&command, "synced", json!({})),
            Err(error) => failed(&command, &error),
        }
    }
    tell(&command, "ended", json!({}));
}

fn contents(store: &Store<ConfigMap>) -> BTreeMap<String, String> {
    let objects = store.state();
    objects
        .iter()
        .map(|map| (name_of(map), value_of(map)))
        .collect()
}

async fn execute(maps: Api<ConfigMap>, command: &Value) -> kube::Result<String> {
    let key = text(command, "key");
    let data = BTreeMap::from([("value".to_owned(), text(command, "value").to_owned())]);
    match text(command, "op") {
        "get" => Ok(value_of(&maps.get(key).await?)),
        "create" => {
            let mut map = ConfigMap::default();
            map.metadata.generate_name = Some(key.to_owned());
            map.data = Some(data);
            let created = maps.create(&PostParams::default(), &map).await?;
            Ok(name_of(&created))
        }
        "update" if command["helper"] == true => Ok("no helper".to_owned()),
        "update" => {
            let mut map = maps.get(key).await?;
            map.data = Some(data);
            maps.replace(key, &PostParams::default(), &map).await?;
            Ok(String::new())
        }
        other => panic!("unknown op {other}"),
    }
}
