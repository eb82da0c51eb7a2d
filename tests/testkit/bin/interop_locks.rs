//! The locks of this library and of the Rust client, under the orders of `tests/clients/interop`
//! (locks/README.md). Behind `GOT` it says which strangers the guard names. Beside locks it knows `look`:
//! who is in a directory.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use lockkeeper::recipes::{Guard, Mutex, ReadWriteLock, RecipeOptions, SharedStyle, Style, Wait};
use tokio::sync::{mpsc, oneshot};
use zookeeper_client::{Acls, Client, CreateMode, LockClient, LockOptions, LockPrefix};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let servers = std::env::args().nth(1).ok_or("usage: interop_locks SERVERS")?;
    let connector = || Client::connector().with_session_timeout(Duration::from_secs(30));
    let sessions = [connector().connect(&servers).await?, connector().connect(&servers).await?];
    println!("READY");
    let mut orders_to_free: HashMap<String, oneshot::Sender<()>> = HashMap::new();
    let mut orders = orders();
    while let Some(order) = orders.recv().await {
        match order.split(' ').collect::<Vec<_>>()[..] {
            ["take", id, kind, session, path] => {
                let (to_free, freed) = oneshot::channel();
                orders_to_free.insert(id.to_string(), to_free);
                let client = sessions[session.parse::<usize>()?].clone();
                let [id, kind, path] = [id, kind, path].map(String::from);
                tokio::spawn(async move {
                    if let Err(error) = hold(&id, &kind, &client, &path, freed).await {
                        println!("ERROR {id} {error}");
                    }
                });
            }
            ["free", id] => drop(orders_to_free.remove(id)),
            ["look", id, path] => match sessions[0].list_children(path).await {
                Ok(names) => println!("SAW {id} {}", names.join(" ")),
                Err(zookeeper_client::Error::NoNode) => println!("SAW {id} "),
                Err(error) => println!("ERROR {id} {error}"),
            },
            _ => return Err(format!("no order: {order}").into()),
        }
    }
    Ok(())
}

/// The lines of the standard input.
fn orders() -> mpsc::UnboundedReceiver<String> {
    let (given, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for order in std::io::stdin().lines().map_while(Result::ok) {
            if given.send(order).is_err() {
                return;
            }
        }
    });
    orders
}

/// Takes the lock, says so, and gives it away when `freed` ends.
async fn hold(
    id: &str,
    kind: &str,
    client: &Client,
    path: &str,
    freed: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    let plain = format!("{path}/lock-");
    let prefix = match kind {
        "rust" => Some(LockPrefix::new_curator(path, "lock-")?),
        // Waits for names that begin so,
        "rust-shared" => Some(LockPrefix::new_shared(&plain)?),
        // and for all in which that is.
        "rust-custom" => Some(LockPrefix::new_custom(plain.clone(), "lock-")?),
        _ => None,
    };
    if let Some(prefix) = prefix {
        let held = rust_lock(client, prefix).await?;
        println!("GOT {id} ");
        let _ = freed.await;
        drop(held);
    } else {
        let guard = ours(kind, client, path).await?;
        let strangers: Vec<String> = guard.strangers().iter().map(ToString::to_string).collect();
        println!("GOT {id} {}", strangers.join(", "));
        let _ = freed.await;
        guard.release().await?;
    }
    println!("FREED {id} ");
    Ok(())
}

async fn rust_lock<'a>(
    client: &'a Client,
    prefix: LockPrefix<'a>,
) -> Result<LockClient<'a>, Failure> {
    let parents = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(parents)?;
    Ok(client.lock(prefix, b"interop", options).await?)
}

async fn ours(kind: &str, client: &Client, path: &str) -> Result<Guard, Failure> {
    let options = || RecipeOptions::at(path).id("interop");
    let mutex = |style| Mutex::new(options()).map(|mutex| mutex.style(style));
    let shared = |style| ReadWriteLock::new(options()).map(|lock| lock.style(style));
    let wait = Wait::Forever;
    Ok(match kind {
        "our-curator" => mutex(Style::Curator)?.acquire(client, wait).await?,
        "our-kazoo" => mutex(Style::Kazoo)?.acquire(client, wait).await?,
        "our-plain" => mutex(Style::Plain)?.acquire(client, wait).await?,
        "our-zk" => mutex(Style::ZooKeeper)?.acquire(client, wait).await?,
        "our-read" => shared(SharedStyle::Curator)?.read(client, wait).await?,
        "our-write" => shared(SharedStyle::Curator)?.write(client, wait).await?.into(),
        "our-kazoo-read" => shared(SharedStyle::Kazoo)?.read(client, wait).await?,
        "our-kazoo-write" => shared(SharedStyle::Kazoo)?.write(client, wait).await?.into(),
        _ => return Err(format!("no lock: {kind}").into()),
    })
}
