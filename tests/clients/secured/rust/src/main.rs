//! zookeeper-client, under the orders of README.md two folders up.
use std::collections::HashMap;
use std::fs::read_to_string;
use std::io::BufRead as _;
use std::time::Duration;

use zookeeper_client::{
    Acl, Acls, AuthId, Client, CreateMode, Error, Permission, SaslOptions, TlsOptions,
};

async fn client(words: &HashMap<String, String>) -> Result<Client, Error> {
    let file = |name: &str| read_to_string(&words[name]).expect("the file is there");
    let mut connector =
        Client::connector().with_session_timeout(Duration::from_secs(10)).with_fail_eagerly();
    if words.contains_key("ca") {
        let mut options = TlsOptions::new().with_pem_ca(&file("ca"))?;
        if words.contains_key("certificate") {
            options = options.with_pem_identity(&file("certificate"), &file("key"))?;
        }
        connector = connector.with_tls(options);
    }
    if let Some(user) = words.get("user") {
        let password = file("password_file").trim().to_owned();
        connector = connector.with_sasl(SaslOptions::digest_md5(user.clone(), password));
    }
    let address = &words["address"];
    match words.contains_key("ca") {
        true => connector.secure_connect(address).await,
        false => connector.connect(address).await,
    }
}

async fn obey(client: &Client, order: &str) -> Result<String, Error> {
    let words: Vec<&str> = order.split_whitespace().collect();
    match words[..] {
        ["create", path, scheme, id] => {
            let acls = [Acl::new(Permission::ALL, AuthId::new(scheme, id))];
            let options = CreateMode::Persistent.with_acls(Acls::new(&acls));
            client.create(path, b"kept", &options).await?;
            Ok("CREATED".to_owned())
        }
        ["get", path] => {
            let (data, _) = client.get_data(path).await?;
            Ok(format!("DATA {}", String::from_utf8_lossy(&data)))
        }
        _ => panic!("no such order: {order}"),
    }
}

#[tokio::main]
async fn main() {
    let words = std::env::args().skip(1).map(|word| {
        let (name, value) = word.split_once('=').expect("name=value");
        (name.to_owned(), value.to_owned())
    });
    let client = match client(&words.collect()).await {
        Ok(client) => client,
        Err(error) => return println!("REFUSED {error:?}"),
    };
    println!("READY");
    for order in std::io::stdin().lock().lines().map_while(Result::ok) {
        let answer = loop {
            match obey(&client, &order).await {
                Err(Error::ConnectionLoss) => tokio::time::sleep(Duration::from_millis(50)).await,
                answer => break answer,
            }
        };
        match answer {
            Ok(answer) => println!("{answer}"),
            Err(Error::NoAuth) => println!("DENIED"),
            Err(error) => println!("ERROR {error:?}"),
        }
    }
}
