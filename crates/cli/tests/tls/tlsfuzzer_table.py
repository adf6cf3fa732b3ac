"""The table of docs/tls-conformance.md, from what tlsfuzzer.py has written: tlsfuzzer_table.py OUTPUT"""

import json
import re
import sys

# The first that is found in the script's name, or in what its failures say, is why.
NAMES = [
    ("client-cert|certificate-verify|certificate-malformed|certificate-request|post-handshake-auth", "no certificates of clients are asked for"),
    ("dhe-(no|rsa|key)|ffdhe|dhe-shared|psk_dhe", "no groups of finite fields"),
    ("aesccm|fuzzed-(MAC|padding)|lucky13|atypical-padding|SSLv3|encrypt-then-mac|cve-2016-2107", "neither CBC nor CCM"),
    ("bleichenbacher|rsa-key-exchange|kRSA|openssl-3712|cve-2016-7054", "no RSA key exchange, or suites that are not spoken"),
    ("tls13-(ecdsa|eddsa|rsapss)", "needs another kind of certificate"),
    ("brainpool|crfg|ecdhe-curves|obsolete-curves|x25519|unsupported-curve|no-unknown", "groups that are not spoken, or another alert than the script wants"),
    ("heartbeat|ocsp|compression", "an extension that is not spoken"),
    ("renegotiation", "renegotiation is declined (RFC 5246 section 7.2.2)"),
    ("sslv2|SSLv2|fallback-scsv|downgrade|non-support|version-numbers", "neither SSL nor TLS 1.0 and 1.1"),
    ("sessionID|resumption-with-wrong", "sessions are in tickets only"),
    ("psk_ke", "resumption is with a key exchange only"),
    ("lengths|large-hello|max-size|number-of-extensions", "the script wants longer hellos than the switch takes (`record_overflow`), or pages as long as it says"),
]
SAID = [
    ("library missing|getopt|UnboundLocalError|is required|are required|must be specified|Specify", "the script needs what is not there: a certificate of a client, a library"),
    ("Expected alert description", "refused as it should be, with another alert than the script wants"),
    ("bad_record_mac|decode_error|record_overflow|illegal_parameter", "refused as it should be, with another alert than the script wants"),
    ("handshake_failure", "the script's probes offer no suite, group or signature that is spoken"),
    ("server_hello|ApplicationData|Timeout", "not refused, though the script wants an alert"),
    ("closure|reset", "the connection ends without the alert that the script wants"),
]

print("| script | passed | failed | |\n|---|---|---|---|")
for line in open(sys.argv[1]):
    row = json.loads(line)
    said = " ".join(row["reasons"] + [row["tail"]])
    if row["FAIL"] == 0 and row["PASS"] > 0:
        why = "passed"
    else:
        found = [why for pattern, why in NAMES if re.search(pattern, row["script"])]
        found += [why for pattern, why in SAID if re.search(pattern, said)]
        why = found[0] if found else "not looked into"
    name = row["script"].removeprefix("test-").removesuffix(".py")
    print(f"| {name} | {row['PASS']} | {row['FAIL']} | {why} |")
