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
printf 'secret12\n' >password
rm key.pem encrypted-key.pem rsa-key.pem rsa-certificate.pem
