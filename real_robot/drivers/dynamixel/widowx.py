"""The servos of the WidowX 250 6DOF, leader arm of ALOHA, and their settings (`wx250s`).

Ids, drive modes and limits are those of Interbotix' configuration, which does not contain the kinds
of servos: stock arms have small servos at wrist_rotate and gripper, leaders of the kit may have
larger ones, and both are only read. A leader has no torque, so its operating mode does not matter.
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
