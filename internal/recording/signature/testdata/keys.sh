#!/bin/sh
# Keys as openssl makes them, and a signature by it of the digest 00 01 .. 1f: see TestOpenSSL. Each run makes others.
set -eu
cd "$(dirname "$0")"
openssl genpkey -algorithm ed25519 -out openssl.key
openssl pkey -in openssl.key -pubout -out openssl.pub
openssl genpkey -algorithm x25519 -out x25519.key
openssl pkey -in x25519.key -pubout -out x25519.pub
openssl genpkey -algorithm ed25519 -aes-256-cbc -pass pass:secret -out encrypted.key
openssl ecparam -name prime256v1 -genkey -noout -out ec.key
{
	printf 'holdfast recording v1\000'
	printf '\000\001\002\003\004\005\006\007\010\011\012\013\014\015\016\017'
	printf '\020\021\022\023\024\025\026\027\030\031\032\033\034\035\036\037'
} >message
openssl pkeyutl -sign -rawin -inkey openssl.key -in message -out openssl.sig
rm message
