"""The real client, command by command: what it prints, and what the ledger then says."""

from __future__ import annotations

from tests.support.market import Market
from tests.vast.conftest import Person, good_machine
from tests.vast.loopback import Loopback


def test_try(market: Market, loopback: Loopback, person: Person) -> None:
    good_machine(market)
    alice = person("alice", "renter")
    bob = person("bob", "host")
    import sys
    def go(c, *w, **k):
        p = c(*w, **k)
        print("$", w, p.code, "OUT", p.out[:1500], "ERR", p.err[-800:], file=sys.stderr)
        for r in loopback.requests(): print("    ", r.method, r.path[:300], str(r.body)[:300], file=sys.stderr)
    Q="gpu_name=RTX_4090 num_gpus=1 reliability>0.98 inet_down>500 disk_space>=100 cuda_vers>=12.4 direct_port_count>=1"
    go(alice,"search","offers",Q,"-o","dlperf_usd-")
    go(alice,"search","offers",Q,"--new","--raw")
    go(alice,"create","instance","1","--image","img","--disk","100","--ssh","--direct","--bid_price","0.30","--label","run-42","--env","-e A=b -p 80:80","--onstart-cmd","x","--raw")
    go(alice,"show","instances")
    go(alice,"show","instances","--raw")
    go(alice,"show","instance","1")
    go(alice,"show","instance","9","--raw")
    go(alice,"stop","instance","1")
    go(alice,"start","instance","1")
    go(alice,"label","instance","1","x y")
    go(alice,"change","bid","1","--price",".35")
    go(alice,"change","bid","1")
    go(alice,"reboot","instance","1")
    go(alice,"show","user")
    go(alice,"show","user","--raw")
    go(alice,"show","invoices-v1","--charges","-s","2026-03-01","-e","2026-03-02")
    go(alice,"show","invoices-v1","--invoices","-s","2026-02-01","-e","2026-03-02")
    go(alice,"show","invoices")
    go(alice,"show","api-keys")
    go(alice,"search","invoices","amount_cents>3000 when>01/01/2026")
    go(alice,"prepay","instance","1","10")
    go(alice,"show","deposit","1")
    go(alice,"show","pending-price-increases")
    go(alice,"transfer","credit","bob","1.5","--skip")
    go(alice,"create","instances","2","--image","img")
    go(alice,"ssh-url","1")
    go(alice,"destroy","instance","1","-y")
    go(alice,"destroy","instances","2","-y")
    go(alice,"launch","instance","-g","RTX_4090","-n","1","-i","img","-d","32","-r","Europe")
    go(bob,"show","machines")
    go(bob,"show","machine","1")
    go(bob,"list","machine","1","-g",".4","-s",".15","-u",".003","-d",".003","-b",".2","-r",".4","-m","1","-e","12/31/2026")
    go(bob,"set","min-bid","1","--price",".21")
    go(bob,"schedule","maint","1","--sdate","1772960000","--duration","0.5","--maintenance_category","power", stdin="y\n")
    go(bob,"show","maints","--ids","1")
    go(bob,"cancel","maint","1", stdin="y\n")
    go(bob,"show","earnings","-s","2026-03-01","-e","2026-03-02")
    go(bob,"reports","1")
    go(bob,"cleanup","machine","1")
    go(bob,"show","gpu-metrics")
    go(bob,"defrag","machines","1")
    go(bob,"unlist","machine","1")
    go(alice,"logs","1")
    go(alice,"execute","1","ls")
    go(alice,"show","endpoints")
    go(alice,"reset","api-key")
    assert 0
