from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check("IQ4_NL", raw("IQ4_NL", {0: "0038", 2: "f0"}, fill=0x88), {0: -63.5, 16: 56.5}, rest=0.5)


def test_equals_the_gguf_package() -> None:
    agrees("IQ4_NL")
