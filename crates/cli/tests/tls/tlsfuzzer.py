"""Runs tlsfuzzer's scripts against a service, and writes a row of a table for each: what it tries, and what came of it.

    tlsfuzzer.py CHECKOUT HOST PORT OUTPUT [SCRIPT...]

CHECKOUT is one of https://github.com/tlsfuzzer/tlsfuzzer; the interpreter has tlslite-ng. Of scripts with many probes some are
drawn (`-n`). OUTPUT gets one line of JSON for each script.
"""

import glob
import json
import os
import re
import subprocess
import sys

checkout, host, port, output, *only = sys.argv[1:]
PROBES, SECONDS = "12", 40


# Without options most scripts for TLS 1.2 want RSA key exchange or CBC, which nobody should speak any more.
SUITE = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"


def options(script):
    name = os.path.splitext(os.path.basename(script))[0].replace("-", "_") + ".py"
    with open(os.path.join(checkout, "tlsfuzzer", "_apps", name)) as source:
        known = source.read()
    wanted = {"-d": ["-d"]} if "tls13" in name else {"-d": ["-d"], "-C": ["-C", SUITE]}
    return [word for option, words in wanted.items() if f"opt == '{option}'" in known for word in words]


def run(script):
    words = [sys.executable, script, "-h", host, "-p", port, "-n", PROBES, *options(script)]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
        said, code = ran.stdout + ran.stderr, ran.returncode
    except subprocess.TimeoutExpired as stopped:
        said, code = (stopped.stdout or b"").decode(errors="replace"), "time"
    counts = {key: sum(map(int, re.findall(rf"^{key}: +(\d+)$", said, re.M))) for key in ("PASS", "FAIL", "TOTAL")}
    failed = re.findall(r"^(?:\t|FAILED:).*$", said, re.M)
    reasons = sorted(set(re.findall(r"^(?:AssertionError|[A-Za-z]*Error|Exception|getopt[A-Za-z.]*).*$", said, re.M)))
    return {"code": code, **counts, "failed": failed[:6], "reasons": reasons[:4], "tail": said[-300:]}


with open(output, "w") as rows:
    for script in sorted(glob.glob(os.path.join(checkout, "scripts", "test-*.py"))):
        name = os.path.basename(script)
        if only and name not in only:
            continue
        row = {"script": name, **run(script)}
        print(name, row["code"], row["PASS"], row["FAIL"], flush=True)
        rows.write(json.dumps(row) + "\n")
        rows.flush()
