// Package opensslkey runs RSA private keys on the system's OpenSSL (libcrypto,
// through cgo), for plants whose connect storms are RSA: a private operation
// takes about a third of the time that Go's own takes, which admits three times
// as many secured sessions per core.
//
// It is built with -tags openssl and needs cgo and libcrypto 3. Without the tag
// [New] returns an error that says so, and [Available] is false. The key it
// returns is a crypto.Signer and a crypto.Decrypter, and takes the place of an
// *rsa.PrivateKey in security.NewKey:
//
//	fast, err := opensslkey.New(rsaKey)
//	key, err := security.NewKey(chain, fast, fast, gate)
package opensslkey
