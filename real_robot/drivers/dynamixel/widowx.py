"""The WidowX 250 6DOF, leader arm of ALOHA: which servo does what and how it must be configured (Interbotix `wx250s`).

Ids, drive modes and limits are those of the published configuration. The kind of servo in each
place is not part of it: stock arms have small servos at wrist_rotate and gripper, leaders of the
kit may have larger ones, and both only have to be read. A leader has no torque, so its operating
mode does not matter.
"""

from stringline.real_robot.drivers.dynamixel.control_table import XL430, XM430
from stringline.real_robot.drivers.dynamixel.viperx import REVERSED, Servo

WIDOWX = (
    Servo(1, "waist", XM430, 0),
    Servo(2, "shoulder", XM430, 0, 819, 3345),
    Servo(3, "shoulder", XM430, REVERSED, 819, 3345, master=2),
    Servo(4, "elbow", XM430, 0, 648, 3094),
    Servo(5, "elbow", XM430, REVERSED, 648, 3094, master=4),
    Servo(6, "forearm_roll", XM430, 0),
    Servo(7, "wrist_angle", XM430, REVERSED, 910, 3447),
    Servo(8, "wrist_rotate", XM430, 0, alternatives=(XL430,)),
    Servo(9, "gripper", XL430, 0, alternatives=(XM430,)),
)
