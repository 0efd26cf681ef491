//! The driver of etcd-client for docs/client-behaviour.md: it executes the commands that it reads from standard
//! input, and prints what the client does. The README.md beside this file has both forms.

#![expect(clippy::unwrap_used, reason = "the runner sees the failure")]
#![expect(clippy::print_stdout, reason = "the runner reads the events there")]

use std::io::BufRead;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, LockOptions, Txn, TxnOp, WatchOptions,
};
use serde_json::{Value, json};

fn main() {
    let (send, mut commands) = tokio::sync::mpsc::channel::<Value>(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            send.blocking_send(serde_json::from_str(&line.unwrap()).unwrap())
                .unwrap();
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut client = None;
        while let Some(command) = commands.recv().await {
            if command["op"] == "connect" {
                match connect(&command).await {
                    Ok(connected) => {
                        client = Some(connected);
                        tell(&command, "returned", json!({"value": ""}));
                    }
                    Err(error) => failed(&command, &error),
                }
                continue;
            }
            let client = client.clone().unwrap();
            tokio::spawn(async move {
                if let Err(error) = Box::pin(execute(client, &command)).await {
                    failed(&command, &error);
                }
            });
        }
    });
}

fn text<'a>(command: &'a Value, field: &str) -> &'a str {
    command[field].as_str().unwrap_or_default()
}

fn tell(command: &Value, event: &str, mut fields: Value) {
    fields["id"] = command["id"].clone();
    fields["event"] = event.into();
    println!("{fields}");
}

fn failed(command: &Value, error: &Error) {
    tell(command, "failed", json!({"text": describe(error)}));
}

fn describe(error: &Error) -> String {
    match error {
        Error::GRpcStatus(status) => format!("{:?}: {}", status.code(), status.message()),
        other => other.to_string(),
    }
}

async fn connect(command: &Value) -> Result<Client, Error> {
    let mut options = ConnectOptions::new();
    if command["user"].is_string() {
        options = options.with_user(text(command, "user"), text(command, "password"));
    }
    if command["keepalive"] == true {
        options = options.with_keep_alive(Duration::from_secs(10), Duration::from_secs(1));
    }
    Client::connect([text(command, "endpoint")], Some(options)).await
}

async fn execute(mut client: Client, command: &Value) -> Result<(), Error> {
    let key = text(command, "key");
    let value = match text(command, "op") {
        "put" => {
            client.put(key, text(command, "value"), None).await?;
            String::new()
        }
        "get" => {
            let found = client.get(key, None).await?;
            match found.kvs().first() {
                Some(kv) => kv.value_str()?.to_owned(),
                None => String::new(),
            }
        }
        "create" => {
            let txn = Txn::new()
                .when([Compare::create_revision(key, CompareOp::Equal, 0)])
                .and_then([TxnOp::put(key, text(command, "value"), None)]);
            let succeeded = client.txn(txn).await?.succeeded();
            if succeeded { "succeeded" } else { "" }.to_owned()
        }
        "watch" => return watch(client, command).await,
        "lock" => return lock(client, command).await,
        other => panic!("unknown op {other}"),
    };
    tell(command, "returned", json!({"value": value}));
    Ok(())
}

async fn watch(mut client: Client, command: &Value) -> Result<(), Error> {
    let mut options = WatchOptions::new().with_prefix();
    if let Some(revision) = command["revision"].as_i64() {
        options = options.with_start_revision(revision);
    }
    let mut stream = client.watch(text(command, "key"), Some(options)).await?;
    while let Some(response) = stream.message().await? {
        if response.created() {
            tell(command, "created", json!({}));
        }
        for event in response.events() {
            let kv = event.kv().unwrap();
            tell(
                command,
                "item",
                json!({"key": kv.key_str()?, "value": kv.value_str()?, "revision": kv.mod_revision()}),
            );
        }
        if response.canceled() {
            let text = format!(
                "canceled, compacted revision {}",
                response.compact_revision()
            );
            tell(command, "failed", json!({"text": text}));
        }
    }
    tell(command, "ended", json!({}));
    Ok(())
}

/// The client renews nothing by itself, so the driver renews as its example does.
async fn lock(mut client: Client, command: &Value) -> Result<(), Error> {
    let ttl = command["ttl"].as_u64().unwrap();
    let lease = client
        .lease_grant(i64::try_from(ttl).unwrap(), None)
        .await?
        .id();
    let options = LockOptions::new().with_lease(lease);
    client.lock(text(command, "key"), Some(options)).await?;
    tell(command, "returned", json!({"value": ""}));
    let (mut keeper, mut renewals) = client.lease_keep_alive(lease).await?;
    let lost = loop {
        tokio::time::sleep(Duration::from_secs(ttl) / 3).await;
        if let Err(error) = keeper.keep_alive().await {
            break format!("keep_alive() fails: {}", describe(&error));
        }
        match renewals.message().await {
            Ok(Some(renewal)) if renewal.ttl() == 0 => break "a renewal with TTL 0".to_owned(),
            Ok(Some(_)) => {}
            Ok(None) => break "the stream ends".to_owned(),
            Err(error) => break format!("the stream fails: {}", describe(&error)),
        }
    };
    tell(command, "lost", json!({"text": lost}));
    Ok(())
}
