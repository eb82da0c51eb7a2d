//! JAAS files: the users of a server, or its key of Kerberos, in the syntax of Java's login configurations.
//!
//! *Owns* that syntax: `Name { module flag option="value" ...; ... };`, comments of C, C++ and the shell, values quoted
//! or bare. *Invariants*: an error names the line and never repeats a value, which may be a password; a module
//! that is not ZooKeeper's own is refused by name in the section that is asked for. *Never* reads the file.
//!
//! Reproduces `javax.security.auth.login.Configuration` and `ServerCnxnFactory.configureSaslLogin`.

use std::fmt;

use super::{ClientLogin, SaslUsers, ServiceKey};

/// The section of a client, unless another one is named (`zookeeper.sasl.clientconfig`).
pub const CLIENT_SECTION_DEFAULT: &str = "Client";

/// Longest text of a JAAS file, bytes.
pub const JAAS_TEXT_BYTES_MAX: usize = 1 << 20;

/// The section of a server's users, unless another one is named (`sasl.serverconfig`).
pub const SECTION_DEFAULT: &str = "Server";

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where; 0 is the whole of it.
    pub line: u32,
    /// What.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.reason),
            line => write!(f, "{line}: {}", self.reason),
        }
    }
}

/// What a section is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// These users authenticate by DIGEST-MD5.
    Users(SaslUsers),
    /// Clients authenticate by Kerberos, with the service of this key.
    Kerberos {
        /// The key.
        key: ServiceKey,
        /// Where that is said.
        line: u32,
    },
}

/// What a section holds; `None`: there is no such section, as in the file of a client.
///
/// # Errors
/// The text is no JAAS file, or the section asks for something that is not offered.
pub fn login(text: &str, section: &str) -> Result<Option<Login>, Fault> {
    let Some(found) = find(text, section)? else { return Ok(None) };
    let mut users = SaslUsers::default();
    for Module { class, line, options } in &found.modules {
        if class == KERBEROS_LOGIN_MODULE && found.modules.len() == 1 {
            let key = service_key(*line, options)?;
            return Ok(Some(Login::Kerberos { key, line: *line }));
        }
        if class != DIGEST_LOGIN_MODULE {
            return Err(fault(
                *line,
                format!(
                    "refused: {class}: a section has {DIGEST_LOGIN_MODULE}, or one {KERBEROS_LOGIN_MODULE}"
                ),
            ));
        }
        for (name, line, value) in options {
            if let Some(user) = name.strip_prefix(USER_PREFIX) {
                users.add(user, value).map_err(|reason| fault(*line, reason))?;
            }
        }
    }
    if users.names().next().is_none() {
        return Err(fault(
            found.line,
            format!("the section {section} has no option {USER_PREFIX}NAME=\"password\""),
        ));
    }
    Ok(Some(Login::Users(users)))
}

/// The key that a module of Kerberos names. Other options are for clients of Kerberos, and a server is none.
fn service_key(line: u32, options: &[(String, u32, String)]) -> Result<ServiceKey, Fault> {
    let given = |wanted: &str| {
        let found = options.iter().find(|(name, _, _)| name == wanted);
        found.map(|(_, _, value)| value.clone()).filter(|value| !value.is_empty())
    };
    if !given("useKeyTab").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(fault(
            line,
            "useKeyTab=true is missing: the key of a server is in a file".to_owned(),
        ));
    }
    let missing = |name: &str| fault(line, format!("the option {name} is missing"));
    Ok(ServiceKey {
        principal: given("principal").ok_or_else(|| missing("principal"))?,
        key_tab: given("keyTab").ok_or_else(|| missing("keyTab"))?,
    })
}

/// Who a section of a client is; `None`: there is no such section.
///
/// # Errors
/// As [`login`].
pub fn client_login(text: &str, section: &str) -> Result<Option<ClientLogin>, Fault> {
    let Some(found) = find(text, section)? else { return Ok(None) };
    let [Module { class, line, options }] = found.modules.as_slice() else {
        return Err(fault(found.line, format!("the section {section} has not one login module")));
    };
    if class != DIGEST_LOGIN_MODULE {
        return Err(fault(
            *line,
            format!("refused: {class}: only {DIGEST_LOGIN_MODULE} is offered"),
        ));
    }
    let option = |wanted: &str| {
        let known = options.iter().find(|(name, _, _)| name == wanted);
        let value = known.map(|(_, _, value)| value.clone()).filter(|value| !value.is_empty());
        value.ok_or_else(|| fault(*line, format!("the section {section} has no option {wanted}")))
    };
    Ok(Some(ClientLogin { user: option("username")?, password: option("password")? }))
}

fn find(text: &str, section: &str) -> Result<Option<Section>, Fault> {
    if text.len() > JAAS_TEXT_BYTES_MAX {
        return Err(fault(0, format!("the file is longer than {JAAS_TEXT_BYTES_MAX} bytes")));
    }
    let parser = Parser { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 };
    Ok(parser.sections()?.into_iter().find(|known| known.name == section))
}

struct Section {
    name: String,
    line: u32,
    modules: Vec<Module>,
}

struct Module {
    class: String,
    line: u32,
    /// Name, line and value of each.
    options: Vec<(String, u32, String)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// One of `{ } ; =`.
    Mark(char),
    End,
}

struct Parser<'a> {
    rest: &'a str,
    line: u32,
}

impl Parser<'_> {
    fn sections(mut self) -> Result<Vec<Section>, Fault> {
        let mut sections: Vec<Section> = Vec::new();
        loop {
            let name = match self.token()? {
                Token::End => return Ok(sections),
                Token::Word(name) => name,
                Token::Mark(_) => return Err(self.expected("the name of a section")),
            };
            let line = self.line;
            if sections.iter().any(|known| known.name == name) {
                return Err(fault(line, format!("there are two sections {name}")));
            }
            self.mark('{')?;
            let mut modules = Vec::new();
            loop {
                match self.token()? {
                    Token::Mark('}') => break,
                    Token::Word(class) => modules.push(self.module(class)?),
                    Token::Mark(_) | Token::End => {
                        return Err(self.expected("a login module or `}`"));
                    }
                }
            }
            self.mark(';')?;
            sections.push(Section { name, line, modules });
        }
    }

    /// What is behind the class of a module.
    fn module(&mut self, class: String) -> Result<Module, Fault> {
        let line = self.line;
        let is_flag = |flag: &str| FLAGS.iter().any(|known| known.eq_ignore_ascii_case(flag));
        match self.token()? {
            Token::Word(flag) if is_flag(&flag) => {}
            _ => return Err(self.expected("required, requisite, sufficient or optional")),
        }
        let mut options = Vec::new();
        loop {
            let name = match self.token()? {
                Token::Mark(';') => return Ok(Module { class, line, options }),
                Token::Word(name) => name,
                Token::Mark(_) | Token::End => return Err(self.expected("an option or `;`")),
            };
            let line = self.line;
            self.mark('=')?;
            match self.token()? {
                Token::Word(value) if value.contains("${") => {
                    let reason = format!(
                        "{name}: there are no properties of Java to put in place of ${{...}}"
                    );
                    return Err(fault(line, reason));
                }
                Token::Word(value) => options.push((name, line, value)),
                Token::Mark(_) | Token::End => return Err(self.expected("the value of an option")),
            }
        }
    }

    fn mark(&mut self, mark: char) -> Result<(), Fault> {
        if self.token()? == Token::Mark(mark) {
            return Ok(());
        }
        Err(self.expected(&format!("`{mark}`")))
    }

    fn expected(&self, what: &str) -> Fault {
        fault(self.line, format!("{what} is expected"))
    }

    fn token(&mut self) -> Result<Token, Fault> {
        self.skip()?;
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        if MARKS.contains(&first) {
            self.rest = &self.rest[1..];
            return Ok(Token::Mark(first));
        }
        if first == '"' {
            return self.quoted();
        }
        let ends = |character: char| {
            character.is_whitespace() || character == '"' || MARKS.contains(&character)
        };
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(Token::Word(word.to_owned()))
    }

    fn quoted(&mut self) -> Result<Token, Fault> {
        let mut value = String::new();
        let mut characters = self.rest.char_indices().skip(1).peekable();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(Token::Word(value));
                }
                '\n' => break,
                '\\' => match characters.next() {
                    Some((_, first @ '0'..='7')) => {
                        // Up to three octal digits, as in Java: at most 255.
                        let mut code = u32::from(first) - u32::from('0');
                        let most = if first <= '3' { 2 } else { 1 };
                        for _ in 0..most {
                            let Some((_, next @ '0'..='7')) = characters.peek().copied() else {
                                break;
                            };
                            characters.next();
                            code = code * 8 + u32::from(next) - u32::from('0');
                        }
                        value.extend(char::from_u32(code));
                    }
                    Some((_, 'a')) => value.push('\u{7}'),
                    Some((_, 'b')) => value.push('\u{8}'),
                    Some((_, 'f')) => value.push('\u{c}'),
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, 'r')) => value.push('\r'),
                    Some((_, 't')) => value.push('\t'),
                    Some((_, 'v')) => value.push('\u{b}'),
                    Some((_, '\n')) | None => break,
                    Some((_, other)) => value.push(other),
                },
                plain => value.push(plain),
            }
        }
        Err(fault(self.line, "the quoted text does not end in its line".to_owned()))
    }

    /// Blanks and comments.
    fn skip(&mut self) -> Result<(), Fault> {
        loop {
            let text = self.rest.trim_start();
            self.count(self.rest.len() - text.len());
            let length = if text.starts_with("//") || text.starts_with('#') {
                text.find('\n').unwrap_or(text.len())
            } else if let Some(comment) = text.strip_prefix("/*") {
                let Some(end) = comment.find("*/") else {
                    return Err(fault(self.line, "the comment does not end".to_owned()));
                };
                end + 4
            } else {
                return Ok(());
            };
            self.count(length);
        }
    }

    /// Goes behind this many bytes.
    fn count(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        let lines = passed.bytes().filter(|byte| *byte == b'\n').count();
        self.line += u32::try_from(lines).unwrap_or(u32::MAX);
        self.rest = rest;
    }
}

fn fault(line: u32, reason: String) -> Fault {
    Fault { line, reason }
}

const MARKS: [char; 4] = ['{', '}', ';', '='];
const FLAGS: [&str; 4] = ["required", "requisite", "sufficient", "optional"];
const DIGEST_LOGIN_MODULE: &str = "org.apache.zookeeper.server.auth.DigestLoginModule";
const KERBEROS_LOGIN_MODULE: &str = "com.sun.security.auth.module.Krb5LoginModule";
const USER_PREFIX: &str = "user_";

#[cfg(test)]
mod tests {
    use super::*;

    fn server(body: &str) -> String {
        format!("Server {{\n  {body}\n}};\n")
    }

    fn passwords(text: &str) -> Vec<(String, String)> {
        let login = login(text, "Server").unwrap().expect("the section is there");
        let Login::Users(users) = login else { panic!("{login:?}") };
        users
            .names()
            .map(|name| (name.to_owned(), users.password_of(name).unwrap().to_owned()))
            .collect()
    }

    fn reason(text: &str) -> String {
        let reason = login(text, "Server").unwrap_err().to_string();
        assert!(!reason.contains("hidden"), "{reason}");
        reason
    }

    #[test]
    fn the_users_of_a_section_are_its_options() {
        let text = "// a comment { ;\n# another\n/* one\n of lines */\n\
             Client { org.apache.zookeeper.server.auth.DigestLoginModule required username=\"x\" password=\"y\"; };\n\
             Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule REQUIRED\n    user_super=\"admin pw\"\n\
             \x20   user_bob = bob-secret.1 // him\n    \"user_a@B\"=\"\\\"\\\\\\101\\n\" debug=true;\n};\n\
             Kerberos { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true\n\
             \x20   keyTab=\"/etc/zk.keytab\" principal=\"zookeeper/h@R\" useTicketCache=false; };";
        let found = passwords(text);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(found, [("a@B", "\"\\A\n"), ("bob", "bob-secret.1"), ("super", "admin pw")]);
        assert!(matches!(login(text, "Other"), Ok(None)));
        let key = ServiceKey {
            principal: "zookeeper/h@R".to_owned(),
            key_tab: "/etc/zk.keytab".to_owned(),
        };
        assert_eq!(login(text, "Kerberos"), Ok(Some(Login::Kerberos { key, line: 12 })));
    }

    #[test]
    fn several_modules_of_a_section_add_up() {
        let module = |user: &str| format!("{DIGEST_LOGIN_MODULE} required user_{user}=p;");
        assert_eq!(passwords(&server(&format!("{} {}", module("a"), module("b")))).len(), 2);
        assert!(
            reason(&server(&format!("{} {}", module("a"), module("a"))))
                .contains("two passwords of a")
        );
    }

    #[test]
    fn a_client_is_the_user_of_its_section() {
        let of = |options: &str| {
            let text =
                format!("Server {{ }};\nClient {{ {DIGEST_LOGIN_MODULE} required {options}; }};");
            client_login(&text, CLIENT_SECTION_DEFAULT).map_err(|fault| fault.to_string())
        };
        let found = of("username=bob password=\"bob secret\"").unwrap().unwrap();
        assert_eq!((found.user.as_str(), found.password.as_str()), ("bob", "bob secret"));
        assert_eq!(of("username=bob").unwrap_err(), "2: the section Client has no option password");
        assert_eq!(
            of("password=hidden").unwrap_err(),
            "2: the section Client has no option username"
        );
        assert_eq!(client_login("Server { };", "Client"), Ok(None));
        let two = "Client { };";
        assert_eq!(
            client_login(two, "Client").unwrap_err().to_string(),
            "1: the section Client has not one login module"
        );
        let kerberos = "Client { com.sun.security.auth.module.Krb5LoginModule required; };";
        assert!(
            client_login(kerberos, "Client").unwrap_err().reason.starts_with("refused: com.sun")
        );
    }

    #[test]
    fn faults_name_their_line_and_no_value() {
        let (digest, kerberos) = (DIGEST_LOGIN_MODULE, KERBEROS_LOGIN_MODULE);
        for (body, expected) in [
            (
                "com.example.Other required user_a=hidden;".to_owned(),
                "2: refused: com.example.Other: a section has",
            ),
            (
                format!("{digest} required user_a=hidden; {kerberos} required;"),
                "2: refused: com.sun.security.auth.module.Krb5LoginModule: a section has",
            ),
            (format!("{kerberos} required principal=p keyTab=k;"), "2: useKeyTab=true is missing"),
            (format!("{kerberos} required useKeyTab=true principal=p;"), "2: the option keyTab is"),
            (format!("{kerberos} required useKeyTab=TRUE keyTab=k;"), "2: the option principal is"),
            (format!("{digest} user_a=hidden;"), "2: required, requisite"),
            (format!("{digest} required;"), "1: the section Server has no option user_NAME"),
            (format!("{digest} required user_a;"), "2: `=` is expected"),
            (format!("{digest} required user_a=;"), "2: the value of an option"),
            (format!("{digest} required user_a=hidden"), "3: an option or `;`"),
            (format!("{digest} required user_a=\"hidden\n\";"), "2: the quoted text does not end"),
            (format!("{digest} required user_a=\"hidden\\"), "2: the quoted text does not end"),
            (
                format!("{digest} required user_a=\"${{hidden}}\";"),
                "2: user_a: there are no properties",
            ),
            (format!("{digest} required user_a=\"\";"), "2: the password of a is empty"),
            (format!("{digest} required user_=hidden;"), "2: the name is empty"),
            (format!("{digest} required user_a=hidden; /*"), "2: the comment does not end"),
            (
                format!("{digest} required user_a=hidden; }}; Server {{"),
                "2: there are two sections Server",
            ),
        ] {
            let reason = reason(&server(&body));
            assert!(reason.starts_with(expected), "{body}: {reason}");
        }
        assert_eq!(reason("Server"), "1: `{` is expected");
        assert!(matches!(login("", "Server"), Ok(None)), "nor has the file of a client");
        assert!(reason(&" ".repeat(JAAS_TEXT_BYTES_MAX + 1)).contains("longer than"));
    }

    #[test]
    fn no_text_makes_it_panic() {
        let mut random = crate::rng::Rng::new(7, 0);
        let parts = [
            "Server",
            "{",
            "}",
            ";",
            "=",
            "\"",
            "\\",
            "/*",
            "*/",
            "//",
            "#",
            "\n",
            "user_a",
            "\u{3a9}",
            "7",
            "required",
            DIGEST_LOGIN_MODULE,
            " ",
        ];
        for _ in 0..5_000 {
            let count = random.below(40);
            let text: String = (0..count)
                .map(|_| parts[usize::try_from(random.below(parts.len() as u64)).unwrap()])
                .collect();
            let _ = login(&text, "Server");
        }
    }
}
