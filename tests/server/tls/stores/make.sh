#!/bin/sh
# Makes the stores of this directory anew, with OpenSSL 3 and the keytool of Java 17. The password of each is secret12.
set -eu
cd "$(dirname "$0")"
rm -f ./*.pem ./*.p12 ./*.jks
days=36500
subject='/O=Example, Inc./CN=localhost'
openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out key.pem
openssl req -x509 -new -key key.pem -days $days -subj "$subject" -addext subjectAltName=DNS:localhost \
    -addext basicConstraints=critical,CA:true -out trust.pem
cat key.pem trust.pem >plain.pem
openssl pkcs8 -topk8 -in key.pem -passout pass:secret12 -v2 aes-256-cbc -out encrypted-key.pem
cat encrypted-key.pem trust.pem >encrypted.pem
openssl genrsa 2048 | openssl pkcs8 -topk8 -nocrypt -out rsa-key.pem
openssl req -x509 -new -key rsa-key.pem -days $days -subj "$subject" -addext subjectAltName=DNS:localhost -out rsa-certificate.pem
cat rsa-key.pem rsa-certificate.pem >rsa.pem
openssl pkcs12 -export -in plain.pem -inkey key.pem -passout pass:secret12 -name server -out openssl.p12
keytool -importkeystore -noprompt -srckeystore openssl.p12 -srcstoretype PKCS12 -srcstorepass secret12 \
    -destkeystore keytool.p12 -deststoretype PKCS12 -deststorepass secret12
keytool -importkeystore -noprompt -srckeystore openssl.p12 -srcstoretype PKCS12 -srcstorepass secret12 \
    -destkeystore keytool.jks -deststoretype JKS -deststorepass secret12
keytool -importcert -noprompt -alias ca -file trust.pem -keystore trust.p12 -storetype PKCS12 -storepass secret12
keytool -importcert -noprompt -alias ca -file trust.pem -keystore trust.jks -storetype JKS -storepass secret12
# Of the first version of X.509: one that an authority has signed, and one that another of the first version has.
first() {
    openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1-key.pem"
    openssl req -new -key "$1-key.pem" -subj "/CN=$1" -out "$1.csr"
    openssl x509 -req -in "$1.csr" "$2" "$3" "$4" "$5" -days $days -out "$1-certificate.pem"
    cat "$1-key.pem" "$1-certificate.pem" >"$1.pem"
}
openssl req -x509 -new -key key.pem -days $days -subj /CN=authority -addext basicConstraints=critical,CA:true -out authority.pem
first first -CA authority.pem -CAkey key.pem
first minted -CA first-certificate.pem -CAkey first-key.pem
mv first-certificate.pem first-alone.pem
rm -f ./*.csr ./*.srl first-key.pem minted-key.pem minted-certificate.pem
printf 'secret12\n' >password
rm key.pem encrypted-key.pem rsa-key.pem rsa-certificate.pem
