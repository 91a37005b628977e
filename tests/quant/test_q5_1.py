from tests.quant.oracle import agrees, check, quantizes_like_gguf, raw


def test_block_written_by_hand() -> None:
    check("Q5_1", raw("Q5_1", {0: "0038 003c", 4: "01000080", 8: "03", 23: "50"}), {0: 10.5, 31: 11.5}, rest=1.0)


def test_equals_the_gguf_package() -> None:
    agrees("Q5_1")


def test_quantizes_like_the_gguf_package() -> None:
    quantizes_like_gguf("Q5_1")
